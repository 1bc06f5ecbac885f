"""``data_parallel = "rest"``: as many replicas as the GPUs hold beside the other degrees of a point."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pybench.model.suite import AxisValue, Benchmark
from pybench.model.workloads.registry import count_axes
from pybench.model.workloads.settings import REST


def rest_gpus(
    benchmark: Benchmark, axes: Mapping[str, AxisValue], num_devices: int, max_gpus: int | None
) -> dict[str, int]:
    """The number that the word stands for in the point of these ``axes``, by its setting; empty without the word.

    ``num_devices`` are there on each host, of all of which ``max_gpus`` may be used. The number is rounded down, and
    1 at least: other degrees above what is there make the point one that has too few GPUs.
    """
    values = {**benchmark.settings, **axes}
    counts = {name: values.get(name, 1) for name in count_axes(benchmark.workload)}
    others = prod(value for value in counts.values() if isinstance(value, int))
    there = num_devices * int(values.get("nodes", 1))
    usable = there if max_gpus is None else min(there, max_gpus)
    return {name: max(1, usable // others) for name, value in counts.items() if value == REST}
