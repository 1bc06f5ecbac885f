"""A run of two real torch ranks (gloo, on the CPU), killed at a hundred moments: what is alive a second later."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).parents[2]
KILLS = 100
EARLIEST_S, LATEST_S = 0.5, 25.0
LATER_S = 1.0


@pytest.mark.timeout(7200)
def test_no_orphan_of_100_killed_runs(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """From before the first worker's start to its measured steps; the moments come from a fixed seed."""
    moments = random.Random(1)
    counts: list[int] = []
    left: dict[float, list[str]] = {}

    def kill() -> None:
        moment_s = round(moments.uniform(EARLIEST_S, LATEST_S), 3)
        folder = tmp_path / f"kill{len(counts)}"
        folder.mkdir()
        command = (sys.executable, "-m", "tests.worker.torch.orphans", str(folder), str(moment_s), str(LATER_S))
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        num_processes, _, *alive = done.stdout.splitlines()
        counts.append(int(num_processes))
        if alive:
            left[moment_s] = alive

    benchmark.pedantic(kill, rounds=KILLS)
    benchmark.extra_info |= {"kills": len(counts), "with ranks": sum(count > 3 for count in counts), "left": len(left)}
    assert left == {}
