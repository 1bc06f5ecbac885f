"""What it costs to start: ``pybench --help`` beside ``import click`` and a bare interpreter, in one run.

Compare the medians that pytest-benchmark prints; ``--help`` should stay within four times ``import click``.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

STARTS = {
    "bare": "pass",
    "import click": "import click",
    "pybench --help": "import sys; sys.argv = ['pybench', '--help']; from pybench.cli.main import main; main()",
}


@pytest.mark.benchmark(group="start-up", min_rounds=20, warmup=True, warmup_iterations=2)
@pytest.mark.parametrize("code", STARTS.values(), ids=STARTS)
def test_startup(benchmark: BenchmarkFixture, code: str) -> None:
    """A whole process, from exec to exit."""
    done = benchmark(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True)
    assert done.returncode == 0
