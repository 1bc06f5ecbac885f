"""Values that depend on the machine: ``all`` GPUs, the ``installed`` backends, a batch that fills them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import lcm, prod

from pybench.model.backend import BACKENDS
from pybench.model.suite import AxisValue, Benchmark, Suite
from pybench.model.workloads.registry import SHARED_BATCH, count_axes
from pybench.model.workloads.settings import ALL_GPUS, INSTALLED


def with_words(suite: Suite, *, num_devices: int, max_gpus: int | None = None) -> Suite:
    """Put values for the words, and record which they are: what can't run of them is left out.

    ``"all"`` is the number of devices that are there, of which ``max_gpus`` may be used. A benchmark's other degrees
    take their part: with ``data_parallel`` 2, all of 8 in ``tensor_parallel`` are 4. Numbers of the axis stay, also
    those above it, which the plan leaves out and names: ``[2, 4, "all"]`` is 2, 4 and 3 on three GPUs. Below the least
    number the word adds nothing. Over several ``nodes`` all are those of each. ``"installed"`` is every backend that
    has the workload; those whose packages are absent are left out once that is known. ``round_up_batch`` makes the
    batch of a step a multiple that every number of GPUs here divides: 8 samples are 9 on three GPUs.
    """
    count = num_devices if max_gpus is None else min(num_devices, max_gpus)
    return replace(suite, benchmarks=tuple(_with_values(benchmark, count) for benchmark in suite.benchmarks))


def _with_values(benchmark: Benchmark, count: int) -> Benchmark:
    share = max(1, count * _num_nodes(benchmark) // prod(_other_degrees(benchmark)))
    axes = {
        name: _backends(values, benchmark.workload) if name == "backend" else _counts(values, share)
        for name, values in benchmark.axes.items()
    }
    implied = {
        name: tuple(value for value in values if value not in benchmark.axes[name]) for name, values in axes.items()
    }
    filled = replace(benchmark, axes=axes, implied={name: values for name, values in implied.items() if values})
    return _with_batch(filled, count) if benchmark.round_up_batch else filled


def _with_batch(benchmark: Benchmark, count: int) -> Benchmark:
    """The counts of its axes that are here share one batch, each by whole passes."""
    name = SHARED_BATCH[benchmark.workload]
    shared_by = (*count_axes(benchmark.workload), "grad_accum", "batch_size_per_gpu")
    multiple = prod(_least_multiple(benchmark, setting, count) for setting in shared_by)
    written = benchmark.settings[name]
    batch = -(-written // multiple) * multiple
    if batch == written:
        return benchmark
    settings = {**benchmark.settings, name: batch}
    return replace(benchmark, settings=settings, implied={**benchmark.implied, name: (batch,)})


def _least_multiple(benchmark: Benchmark, setting: str, count: int) -> int:
    """Least common multiple of the setting's numbers, without counts above the GPUs here."""
    values = benchmark.given.values(setting)
    is_count = setting in count_axes(benchmark.workload)
    return lcm(*(value for value in values if isinstance(value, int) and not (is_count and value > count)))


def _num_nodes(benchmark: Benchmark) -> int:
    """Of a benchmark whose points have one number of them."""
    values = benchmark.axes.get("nodes", (benchmark.settings.get("nodes", 1),))
    return values[0] if len(values) == 1 and isinstance(values[0], int) else 1


def _other_degrees(benchmark: Benchmark) -> Iterator[int]:
    """Degrees with one value; an axis with the word is the unknown."""
    for name in count_axes(benchmark.workload):
        values = benchmark.axes.get(name, (benchmark.settings.get(name, 1),))
        if len(values) == 1 and isinstance(values[0], int):
            yield values[0]


def _counts(values: tuple[AxisValue, ...], count: int) -> tuple[AxisValue, ...]:
    if ALL_GPUS not in values:
        return values
    numbers = [value for value in values if isinstance(value, int)]
    is_wanted = not numbers or count >= min(numbers)
    return tuple(dict.fromkeys((*numbers, count) if is_wanted else numbers))


def _backends(values: tuple[AxisValue, ...], workload: str) -> tuple[AxisValue, ...]:
    if INSTALLED not in values:
        return values
    able = (name for name, traits in BACKENDS.items() if workload in traits.parallel_axes)
    return tuple(dict.fromkeys((*(value for value in values if value != INSTALLED), *able)))
