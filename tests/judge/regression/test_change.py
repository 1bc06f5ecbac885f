"""Changes of all rows of two runs together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pybench.judge.regression.change import Sides, changes_of
from pybench.model.figures import Row

SPEED, ENERGY = "output_tokens_per_s", "energy_j_per_output_token"
SMALLEST = {SPEED: 0.01, ENERGY: 0.01}


def sides(change: float, sd: float) -> Sides:
    """Three attempts of each run, whose mean of logarithms differs by ``change``."""
    steps = (-sd, 0.0, sd)
    return Sides(tuple(math.exp(change + s) for s in steps), (tuple(math.exp(s) for s in steps),))


@pytest.mark.parametrize(("metric", "sign"), [(SPEED, 1), (ENERGY, -1)])
def test_a_change_that_one_of_many_rows_shows_by_chance_is_undecided(metric: str, sign: int) -> None:
    """By hand: sd 0.01 sqrt(2/3), four degrees: 3.444 % less is 3.0 of it beyond 1 %, P = 2 %; 20 % less is P = 1e-5.

    Of three rows the least likely stands at 5 / 3 % (Holm), the next at 2.5 %.
    """
    worse, much_worse, better = (sides(sign * change, 0.01) for change in (-0.03444, -0.2, 0.03444))
    alone = changes_of({Row("a", metric): worse}, SMALLEST)
    assert [change.verdict for change in alone.values()] == ["regressed"]
    equal = {Row("equal", metric): sides(0.0, 0.01)}
    among = changes_of({**equal, Row("a", metric): worse, Row("b", metric): better}, SMALLEST)
    for name, verdict in (("a", "regressed"), ("b", "improved")):
        change = among[Row(name, metric)]
        assert (change.verdict, change.reason) == ("undecided", f"{verdict} by itself, but not yet sure among 3 rows")
    beside = changes_of({**equal, Row("a", metric): worse, Row("b", metric): much_worse}, SMALLEST)
    assert [beside[Row(name, metric)].verdict for name in "ab"] == ["regressed", "regressed"]


@pytest.mark.no_cover
def test_equal_runs_of_many_rows_rarely_have_a_regressed_one() -> None:
    """Forty rows, attempts 0.3 to 2 % apart: 2 % of 150 pairs, 18 % where each row was judged by itself."""
    random = np.random.default_rng(31)

    def attempts(sd: float) -> tuple[float, ...]:
        return tuple(np.exp(sd * random.standard_normal(3)))

    regressed = 0
    for _ in range(150):
        spreads = np.exp(random.uniform(math.log(0.003), math.log(0.02), 40))
        rows = {Row(f"{place}", SPEED): Sides(attempts(sd), (attempts(sd),)) for place, sd in enumerate(spreads)}
        regressed += any(change.verdict == "regressed" for change in changes_of(rows, SMALLEST).values())
    assert regressed <= 9
