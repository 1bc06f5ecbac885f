"""The word ``all`` among the values of an axis of GPUs: the number that a run may use."""

from __future__ import annotations

from dataclasses import replace

from pybench.model.suite import AxisValue, Suite
from pybench.model.workloads.node import ALL_GPUS


def with_all_gpus(suite: Suite, *, num_devices: int, max_gpus: int | None = None) -> Suite:
    """Put a number for ``"all"``: the devices that are there, of which ``max_gpus`` may be used.

    Counts above it leave such an axis, and what would be there twice: ``[2, 4, "all"]`` is 2 and 3 on three GPUs, and 1
    on one, where the workload's own ``least_gpus`` may skip the point. An axis without the word stays as it is.
    """
    count = num_devices if max_gpus is None else min(num_devices, max_gpus)
    benchmarks = (
        replace(benchmark, axes={name: _resolved(values, max(1, count)) for name, values in benchmark.axes.items()})
        for benchmark in suite.benchmarks
    )
    return replace(suite, benchmarks=tuple(benchmarks))


def _resolved(values: tuple[AxisValue, ...], count: int) -> tuple[AxisValue, ...]:
    if ALL_GPUS not in values:
        return values
    numbers = (count if value == ALL_GPUS else value for value in values)
    return tuple(dict.fromkeys(value for value in numbers if not isinstance(value, int) or value <= count))
