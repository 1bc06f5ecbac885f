"""The word ``all`` among the values of an axis of GPUs: as many as a run may use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from pybench.model.suite import AxisValue, Benchmark, Suite
from pybench.model.workloads.registry import count_axes
from pybench.model.workloads.settings import ALL_GPUS


def with_all_gpus(suite: Suite, *, num_devices: int, max_gpus: int | None = None) -> Suite:
    """Put a number for ``"all"``: the devices that are there, of which ``max_gpus`` may be used.

    A benchmark's other degrees take their part: with ``data_parallel`` 2, all of 8 in ``tensor_parallel`` are 4. Counts
    above it leave such an axis, and what would be there twice: ``[2, 4, "all"]`` is 2 and 3 on three GPUs. When it is
    below the least of the axis's numbers, that number alone stays, and its point is skipped. An axis without the word
    stays as it is.
    """
    count = num_devices if max_gpus is None else min(num_devices, max_gpus)
    return replace(suite, benchmarks=tuple(_with_counts(benchmark, count) for benchmark in suite.benchmarks))


def _with_counts(benchmark: Benchmark, count: int) -> Benchmark:
    share = max(1, count // prod(_other_degrees(benchmark)))
    return replace(benchmark, axes={name: _resolved(values, share) for name, values in benchmark.axes.items()})


def _other_degrees(benchmark: Benchmark) -> Iterator[int]:
    """Degrees with one value; those of an axis that has the word are what is sought."""
    for name in count_axes(benchmark.workload):
        values = benchmark.axes.get(name, (benchmark.settings.get(name, 1),))
        if len(values) == 1 and isinstance(values[0], int):
            yield values[0]


def _resolved(values: tuple[AxisValue, ...], count: int) -> tuple[AxisValue, ...]:
    if ALL_GPUS not in values:
        return values
    numbers = [value for value in values if isinstance(value, int)]
    if numbers and count < min(numbers):
        return (min(numbers),)
    return tuple(dict.fromkeys(value for value in (*numbers, count) if value <= count))
