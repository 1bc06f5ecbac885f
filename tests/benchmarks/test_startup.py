"""What it costs to start: ``pybench --help`` beside ``python -c "import click"`` and a bare interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

HELP = (str(Path(sys.executable).with_name("pybench")), "--help")
BESIDE = {"import click": (sys.executable, "-c", "import click"), "bare python": (sys.executable, "-c", "pass")}
MOST_TIMES_CLICK = 4.0
ROUNDS = 30


def start_s(command: Sequence[str]) -> float:
    """Seconds of a whole process, from exec to exit."""
    begin_s = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin_s


@pytest.mark.parametrize("beside", BESIDE)
def test_help(benchmark: Any, capsys: pytest.CaptureFixture[str], beside: str) -> None:
    """The other process starts before each of ours, so that a busy spell of the machine meets both."""
    others_s: list[float] = []
    ours_s: list[float] = []
    benchmark.pedantic(
        lambda: ours_s.append(start_s(HELP)),
        setup=lambda: others_s.append(start_s(BESIDE[beside])),
        rounds=ROUNDS,
        warmup_rounds=2,
    )
    ratio = statistics.median(ours / other for ours, other in zip(ours_s, others_s, strict=True))
    benchmark.extra_info |= {"beside": beside, "ratio": round(ratio, 3)}
    with capsys.disabled():
        print(f"\npybench --help takes {ratio:.2f} times as long as {beside}")
    assert beside != "import click" or ratio <= MOST_TIMES_CLICK
