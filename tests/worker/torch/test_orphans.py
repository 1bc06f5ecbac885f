"""A run of real torch ranks that is killed leaves nothing; ``tests/benchmarks/test_orphans.py`` kills a hundred."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.torch.orphans import MOMENTS

ROOT = Path(__file__).parents[3]
PATIENCE_S = 30.0  # the benchmark has one second


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left(tmp_path: Path, moment: str) -> None:
    """While the run is prepared, while ranks import torch, while they measure, on a machine of whatever speed."""
    command = (sys.executable, "-m", "tests.worker.torch.orphans", str(tmp_path), moment, str(PATIENCE_S))
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    num_processes, how, *left = done.stdout.splitlines()
    assert how == "killed", (tmp_path / "log").read_text()
    assert int(num_processes) >= 1
    assert left == []
