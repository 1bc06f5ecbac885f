"""How far joules are from the truth on simulated boards, and whether the bound holds it; seeded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.physics.board import BOARDS
from tests.physics.windows import Outcome, measure

NUM_WINDOWS = 200
LOADS = ("constant", "decode_30hz", "square_200_200", "square_50_50", "bursty", "generation", "pulses_of_10ms")
PART_TIME_LOADS = ("constant", "decode_30hz", "square_200_200", "square_at_101ms", "bursty")
WINDOWS_S = (0.1, 0.2, 1.0, 5.0)
CELLS = [
    (board, load, window_s)
    for board in BOARDS
    for load in (LOADS if board.startswith("H200") else PART_TIME_LOADS)
    for window_s in WINDOWS_S
]


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """One line a cell, printed at the end."""
    lines = ["| board | load | window | p95 error | inside | inside or flagged | median half-width | flags |"]
    yield lines
    print("\n" + "\n".join(lines))


@pytest.mark.parametrize(("board", "load", "window_s"), CELLS)
@pytest.mark.timeout(600)
def test_energy_against_truth(
    benchmark: BenchmarkFixture, table: list[str], board: str, load: str, window_s: float
) -> None:
    """Where no flag warns, the truth lies inside the bound in 99 % of all windows, but for one by chance."""
    outcome: Outcome = benchmark.pedantic(measure, (load, window_s, NUM_WINDOWS, BOARDS[board]))
    flags = ", ".join(sorted({flag for flags in outcome.flags for flag in flags})) or "-"
    figures = f"{outcome.p95_percent:.2f} % | {outcome.inside_percent:.1f} % | {outcome.told_percent:.1f} %"
    table.append(f"| {board} | {load} | {window_s:g} s | {figures} | ± {outcome.half_width_percent:.2f} % | {flags} |")
    assert outcome.told_percent >= 99.0 - 100 / NUM_WINDOWS
