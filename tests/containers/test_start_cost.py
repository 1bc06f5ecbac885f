"""What a container adds to a worker's start: compare each engine's row with the one of engine none."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pybench.launch.job import Argv, Job, Launcher
from pybench.launch.local import Local
from pybench.runner.worker import start_worker
from tests.containers.boxed_engine import Boxed, job

ROUNDS = 20
GROUP = "worker start and end"


def start_and_end(launcher: Launcher, task: Job, argv: Argv) -> None:
    worker = start_worker(launcher, task, argv, task.exchange.parent / "worker.log")
    while worker.wait(10) is None:
        pass
    worker.end()


@pytest.mark.benchmark(group=GROUP)
def test_in_a_container(boxed: Boxed, tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    """Environment file, start, end, read-back and removal."""
    launcher, task = boxed.launcher(), job(tmp_path)
    argv = launcher.run_argv(task, "-I", "-B", "-c", "pass")
    benchmark.pedantic(start_and_end, (launcher, task, argv), rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.benchmark(group=GROUP)
def test_in_none(tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    """The same Python, started directly."""
    launcher, task = Local(), job(tmp_path)
    argv = (launcher.python, "-I", "-B", "-c", "pass")
    benchmark.pedantic(start_and_end, (launcher, task, argv), rounds=ROUNDS, warmup_rounds=1)
