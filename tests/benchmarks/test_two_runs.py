"""Equal software in two runs: how often any row is called worse, by what disturbs attempts. Run by ``make bench``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pybench.model.figures import FigureKey
from pybench.nightly.change import Sides, changes_of
from tests.benchmarks.tables import write_table
from tests.benchmarks.verdict_simulation import ATTEMPTS, Draw

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


def _is_any_worse(random: np.random.Generator, draw: Draw, num_rows: int, *, is_ab: bool) -> bool:
    if is_ab:
        attempts = np.exp(draw(random, num_rows))
        before, now = attempts[:, OF_A], attempts[:, OF_B]
    else:
        before, now = (np.exp(draw(random, num_rows)[:, :3]) for _ in range(2))
    rows = {
        FigureKey(f"p{row}", METRIC): Sides(tuple(now[row].tolist()), (tuple(before[row].tolist()),))
        for row in range(num_rows)
    }
    return any(change.verdict in {"regressed", "differs"} for change in changes_of(rows, {METRIC: 0.01}).values())


@pytest.mark.timeout(3600)
def test_two_equal_runs(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Three attempts a side, one run after the other, and by ``--ab``; rewrites the page."""

    def rates(name: str, num_rows: int) -> str:
        shares = []
        for is_ab in (False, True):
            random, num = np.random.default_rng(num_rows), RUNS_OF_ROWS[num_rows]
            shares.append(sum(_is_any_worse(random, ATTEMPTS[name], num_rows, is_ab=is_ab) for _ in range(num)) / num)
        return "; ".join(f"{100 * share:.1f}" for share in shares)

    table = benchmark.pedantic(
        lambda: [[name, before, *(rates(name, num) for num in RUNS_OF_ROWS)] for name, before in BEFORE.items()],
        rounds=1,
    )
    heads = ["attempts", "before: 1 row; 30 rows", "1 row", *(f"{num} rows" for num in RUNS_OF_ROWS if num > 1)]
    write_table("nightly.md", "two runs", [heads, *table], capsys)
