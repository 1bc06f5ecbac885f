"""Who arrives last."""

from __future__ import annotations

import numpy as np
import pytest

from pybench.fleet.barriers import late_nodes
from pybench.fleet.decision import judge_fleet
from pybench.fleet.values import Barriers
from pybench.model.change import SmallestEffects

NAMES = tuple(f"node{n}" for n in range(1, 9))


def barriers(late_s: float, num: int = 100, bound_s: float = 0.0002, names: tuple[str, ...] = NAMES) -> Barriers:
    """One a second, arrivals 2 ms apart; node3 so much later."""
    random = np.random.default_rng(1)
    return Barriers(
        clock_bound_s=bound_s,
        arrivals_s=tuple(
            {name: n + 0.002 * random.standard_normal() + late_s * (name == "node3") for name in names}
            for n in range(num)
        ),
    )


def test_who_arrives_last_is_the_slow_one() -> None:
    """By 30 ms of a second: last at every barrier, though all others wait for it."""
    found = late_nodes(barriers(0.03), SmallestEffects())
    assert [*found] == ["node3"]
    assert found["node3"].text.startswith("last at 100 of 100, by 30")
    assert found["node3"].fraction == pytest.approx(-0.03, abs=0.001)


@pytest.mark.parametrize(
    ("late_s", "num", "bound_s"),
    [
        (0.0, 100, 0.0002),  # nobody is late
        (0.006, 100, 0.0002),  # below 1 % of the time between barriers
        (0.03, 100, 0.05),  # below what the clocks are certain to
        (0.03, 7, 0.0002),  # too few barriers
    ],
)
def test_what_shows_nobody(late_s: float, num: int, bound_s: float) -> None:
    """Chance, the smallest effect, and clocks."""
    assert late_nodes(barriers(late_s, num, bound_s), SmallestEffects()) == {}


def test_nodes_that_arrive_together_are_not_told_apart() -> None:
    """By times of few digits: the one that a file names first is no later than the other."""
    together = Barriers(
        clock_bound_s=0.0002, arrivals_s=tuple({"a": n + 0.03, "b": n + 0.03, "c": float(n)} for n in range(20))
    )
    assert late_nodes(together, SmallestEffects()) == {}


def test_of_two_nodes_the_later_one_is_named() -> None:
    """It makes a node suspect; a node that arrived and has no run is not healthy."""
    result = judge_fleet((), barriers=barriers(0.03, names=("node1", "node3")))
    assert {node.name: node.state for node in result.nodes} == {"node1": "not compared", "node3": "suspect"}
