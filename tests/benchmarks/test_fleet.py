"""Whether a fleet's check keeps its goals: simulated fleets with known truth, every goal beside what is found.

Nodes are 0.5 % apart, the four GPUs of a node 0.3 %, attempts 0.3 %; a node, a GPU or a link is 5 % slow. Pairs are
those of three rounds. Run by ``make bench``; the fast tier holds single fleets (``tests/fleet``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pybench.fleet.pair_rounds import pair_rounds
from pybench.fleet.values import FleetResult
from tests.fleets import Fleet, named

TRIALS = 50
SLOW = -math.log(0.95)
Judge = Callable[[Fleet, np.random.Generator], FleetResult]


def _by_figures(fleet: Fleet, random: np.random.Generator) -> FleetResult:
    return fleet.judged(random)


def _by_pairs(fleet: Fleet, random: np.random.Generator) -> FleetResult:
    return fleet.judged_by_pairs(random)


def _rates(judge: Judge, fleet: Fleet, truth: set[Any]) -> tuple[int, int]:
    """Of so many fleets: in how many all of the truth is named, and in how many anything else is."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(TRIALS):
        result = judge(fleet, random)
        found.append(named(result) | {link.nodes for link in result.links})
    return sum(truth <= one for one in found), sum(bool(one - truth) for one in found)


@pytest.mark.parametrize("num_nodes", [3, 4, 8, 16, 64])
def test_rates(benchmark: Any, capsys: pytest.CaptureFixture[str], num_nodes: int) -> None:
    """The goals are for sixteen nodes: 50 of 50 named, 50 of 50 healthy fleets clean."""
    well = Fleet(num_nodes=num_nodes)
    (pair, *_), *_ = pair_rounds(well.names)
    slow, gpu = replace(well, slow={"node02": SLOW}), replace(well, slow_gpus={("node02", 1): SLOW})
    drawn: list[tuple[str, Judge, Fleet, set[Any]]] = [
        ("figures: healthy", _by_figures, well, set()),
        ("figures: a slow node", _by_figures, slow, {"node02"}),
        ("figures: a slow GPU", _by_figures, gpu, {"node02"}),
        ("pairs: healthy", _by_pairs, well, set()),
        ("pairs: a slow node", _by_pairs, slow, {"node02"}),
        ("pairs: a slow link", _by_pairs, replace(well, slow_links={pair: SLOW}), {pair}),
    ]

    def simulate() -> list[tuple[str, int, int]]:
        return [(name, *_rates(judge, fleet, truth)) for name, judge, fleet, truth in drawn]

    found = benchmark.pedantic(simulate, rounds=1)
    benchmark.extra_info["found"] = {name: (hit, false) for name, hit, false in found}
    with capsys.disabled():
        print()
        for name, hit, false in found:
            print(f"  {num_nodes:>3} nodes, {name:<24} named {hit:>3} of {TRIALS}, others named in {false:>3}")
