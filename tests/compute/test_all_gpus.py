"""The word ``all`` on machines of any size."""

from __future__ import annotations

import pytest

from pybench.compute.all_gpus import with_all_gpus
from pybench.model.effort import Effort
from pybench.model.suite import AxisValue, Benchmark, Suite


def _suite(**axes: tuple[AxisValue, ...]) -> Suite:
    benchmark = Benchmark(name="b", workload="matmul", settings={"backend": "torch"}, axes=axes, effort=Effort())
    return Suite(name="s", description="", benchmarks=(benchmark,))


@pytest.mark.parametrize(
    ("num_devices", "max_gpus", "counts"),
    [
        (1, None, (1,)),
        (2, None, (2,)),
        (3, None, (2, 3)),
        (4, None, (2, 4)),
        (8, None, (2, 4, 8)),
        (8, 3, (2, 3)),
        (8, 16, (2, 4, 8)),
        (0, None, (1,)),
    ],
)
def test_all_is_what_the_run_may_use(num_devices: int, max_gpus: int | None, counts: tuple[int, ...]) -> None:
    """Once, and nothing above it; without any device one is asked for, and will be missed."""
    made = with_all_gpus(_suite(gpus=(2, 4, "all"), seed=(1, 2)), num_devices=num_devices, max_gpus=max_gpus)
    assert made.benchmarks[0].axes == {"gpus": counts, "seed": (1, 2)}


def test_an_axis_of_numbers_stays() -> None:
    """What is too large for the machine is skipped with a reason, as ever."""
    suite = _suite(gpus=(2, 4))
    assert with_all_gpus(suite, num_devices=1) == suite
