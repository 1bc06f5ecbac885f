"""Planning takes time in proportion to the points: 16,384 of them within 2 s of CPU time.

``python -m pytest -n0 tests/benchmarks/test_planning.py``
"""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pybench.core.plan import expand
from pybench.core.schedule import sessions
from pybench.files.shipped import load_models
from pybench.model.machine import Devices
from pybench.model.suite import Benchmark, Effort, Plan, Suite

GENERATE = {"backend": "torch", "model": "llama-tiny"}
AXES = {"batch_size": 16, "prompt_tokens": 16, "output_tokens": 16}
LIMIT_S = 2.0


def suite(benchmarks: int) -> Suite:
    """Of 4,096 points each."""
    axes = {name: tuple(range(2, 2 + count)) for name, count in AXES.items()}
    return Suite(
        name="s",
        description="",
        benchmarks=tuple(
            Benchmark(name=f"b{number}", workload="generate", settings=dict(GENERATE), axes=dict(axes), effort=Effort())
            for number in range(benchmarks)
        ),
    )


def plan(benchmarks: int) -> tuple[Plan, int]:
    """The plan, and how many processes it takes."""
    made = expand(suite(benchmarks), load_models(), Devices("cpu", 1))
    return made, sum(1 for _ in sessions(made.points))


@pytest.mark.benchmark(group="planning", timer=time.process_time)
def test_planning_16384_points(benchmark: BenchmarkFixture) -> None:
    """Points and the processes that they share: at most 2 s of CPU time, whatever else the machine does."""
    made, processes = benchmark.pedantic(plan, args=(4,), rounds=3)
    assert len(made.points) == 4 * 4096
    assert processes >= 3  # attempts at one point are processes of their own
    assert benchmark.stats is not None
    assert benchmark.stats.stats.min <= LIMIT_S
