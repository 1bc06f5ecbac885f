"""Two runs: how often a row of equal software is called worse, and a slower one is found. Run by ``make bench``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pybench.model.figures import FigureKey
from pybench.nightly.change import Sides, changes_of
from tests.benchmarks.tables import write_table
from tests.benchmarks.verdict_simulation import ATTEMPTS, MOST, Draw

METRIC = "output_tokens_per_s"
RUNS_OF_ROWS = {1: 1000, 6: 300, 12: 200, 30: 100}
BEFORE = {
    "normal, 1 %": "0.1; 0.0",
    "heavy tails (t, 3 degrees)": "0.0; 1.0",
    "2 % bad, slower by 5 % on average": "0.1; 0.0",
    "1 in 5 slower by 3.1 %": "0.9; 11",
    "two equally frequent speeds": "1.6; 40",
    "clocks fall by 2 %": "0.1; 0.0",
    "each point by itself remembers, correlation 0.3": "0.6; 1.0",
    "each point by itself remembers, correlation 0.6": "2.8; 28",
}
"""Of two runs at a620776e, by the same simulation; such a row was then *regressed*."""
OF_A, OF_B = (0, 3, 4), (1, 2, 5)
"""Attempts of ``--ab`` in the order A-B-B-A."""


def _worse(random: np.random.Generator, draw: Draw, num_rows: int, *, is_ab: bool, loss: float = 0.0) -> set[str]:
    """Points called worse; the first one is slower by ``loss``."""
    if is_ab:
        attempts = np.exp(draw(random, num_rows))
        before, now = attempts[:, OF_A], attempts[:, OF_B]
    else:
        before, now = (np.exp(draw(random, num_rows)[:, :3]) for _ in range(2))
    now[0] *= 1 - loss
    rows = {
        FigureKey(f"p{row}", METRIC): Sides(tuple(now[row].tolist()), (tuple(before[row].tolist()),))
        for row in range(num_rows)
    }
    changes = changes_of(rows, {METRIC: 0.01})
    return {row.point_id for row, change in changes.items() if change.verdict in {"regressed", "differs"}}


@pytest.mark.timeout(3600)
def test_two_equal_runs(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Three attempts a side, one run after the other, and by ``--ab``; rewrites the page."""

    def rates(name: str, num_rows: int) -> str:
        shares = []
        for is_ab in (False, True):
            random, num = np.random.default_rng(num_rows), RUNS_OF_ROWS[num_rows]
            shares.append(sum(bool(_worse(random, ATTEMPTS[name], num_rows, is_ab=is_ab)) for _ in range(num)) / num)
        return "; ".join(f"{100 * share:.1f}" for share in shares)

    table = benchmark.pedantic(
        lambda: [[name, before, *(rates(name, num) for num in RUNS_OF_ROWS)] for name, before in BEFORE.items()],
        rounds=1,
    )
    heads = ["attempts", "before: 1 row; 30 rows", "1 row", *(f"{num} rows" for num in RUNS_OF_ROWS if num > 1)]
    write_table("nightly.md", "two runs", [heads, *table], capsys)


@pytest.mark.timeout(3600)
def test_a_slower_row(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One row is slower by 2, 3 or 5 %: how often it is found, of three attempts a side; rewrites the page."""

    def found(sd: float, num_rows: int, loss: float) -> str:
        shares = []
        for is_ab in (False, True):
            random, num = np.random.default_rng(num_rows), RUNS_OF_ROWS[num_rows]
            draw: Draw = lambda random, num: sd * random.standard_normal((num, MOST))  # noqa: E731
            shares.append(sum("p0" in _worse(random, draw, num_rows, is_ab=is_ab, loss=loss) for _ in range(num)) / num)
        return "; ".join(f"{100 * share:.0f}" for share in shares)

    table = benchmark.pedantic(
        lambda: [
            [f"{100 * sd:g} %", str(num), *(found(sd, num, loss) for loss in (0.02, 0.03, 0.05))]
            for sd in (0.003, 0.005, 0.01)
            for num in (1, 30)
        ],
        rounds=1,
    )
    write_table("nightly.md", "a slower row", [["noise", "rows", "2 % slower", "3 %", "5 %"], *table], capsys)
