"""Rules that join several fields of one benchmark, each of them valid alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from pybench.files.toml.lines import KeyPath, KeyProblem
from pybench.model.suite import Benchmark, Limits, Scaling
from pybench.model.workloads.registry import SETTINGS_OF, SHARED_BATCH, TRAITS_OF, count_axes
from pybench.model.workloads.settings import ALL_GPUS, NODES, REST

MAX_POINTS = 4096


def benchmark_problems(benchmark: Benchmark) -> Iterator[KeyProblem]:
    """Every rule that the benchmark breaks without a look at others, by keys of its table."""
    yield from _settings(benchmark)
    yield from _effort(benchmark)
    yield from _all_gpus(benchmark)
    yield from _rounded_batch(benchmark)
    for breach in TRAITS_OF[benchmark.workload].rules(benchmark.given):
        yield _where(benchmark, breach.key), breach.message
    for index, expectation in enumerate(benchmark.expectations):
        if isinstance(expectation, Limits):
            problems = _limits(expectation)
        else:
            problems = _scaling(expectation, benchmark) if isinstance(expectation, Scaling) else iter(())
        yield from (((*("expect", index), *path), message) for path, message in problems)


def _where(benchmark: Benchmark, setting: str | None) -> KeyPath:
    if setting is None:
        return ()
    return ("axes", setting) if setting in benchmark.axes else (setting,)


def _settings(benchmark: Benchmark) -> Iterator[KeyProblem]:
    for name in benchmark.axes:
        if name in benchmark.settings:
            yield ("axes", name), "both fixed and an axis; keep one of the two"
    for field in dataclasses.fields(SETTINGS_OF[benchmark.workload]):
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and not benchmark.given.values(field.name):
            yield (field.name,), "missing, and it is required, as a value or an axis"


def _effort(benchmark: Benchmark) -> Iterator[KeyProblem]:
    num_points = math.prod(len(values) for values in benchmark.axes.values())
    if num_points > MAX_POINTS:
        yield ("axes",), f"expands to {num_points} points, at most {MAX_POINTS} are allowed"
    effort = benchmark.effort
    if effort.max_attempts < effort.attempts:
        yield ("max_attempts",), f"{effort.max_attempts} is below attempts = {effort.attempts}"


def _all_gpus(benchmark: Benchmark) -> Iterator[KeyProblem]:
    """What the other degrees leave is one number only where each of them is one."""
    names = [name for name in count_axes(benchmark.workload) if name in benchmark.axes]
    degrees = {name: benchmark.axes[name] for name in names}
    rest = [name for name in count_axes(benchmark.workload) if benchmark.settings.get(name) == REST]
    for name in rest:
        if others := [other for other in rest if other != name] or [n for n, own in degrees.items() if ALL_GPUS in own]:
            yield (name,), f"{REST!r} is what the other degrees leave, and {others[0]} has no number; give it one"
    for name, values in degrees.items():
        several = [other for other, own in degrees.items() if other != name and (len(own) > 1 or ALL_GPUS in own)]
        if ALL_GPUS in values and several:
            yield ("axes", name), f"{ALL_GPUS!r} is what the other degrees leave: give {several[0]} one number"


def _rounded_batch(benchmark: Benchmark) -> Iterator[KeyProblem]:
    if benchmark.round_up_batch and not isinstance(benchmark.settings.get(SHARED_BATCH[benchmark.workload]), int):
        yield ("round_up_batch",), f"there is no batch to round up: give {SHARED_BATCH[benchmark.workload]} one number"


def _limits(expectation: Limits) -> Iterator[KeyProblem]:
    least, most = expectation.minimum, expectation.maximum
    if least is not None and most is not None and least > most:
        yield ("minimum",), f"{least:g} is above maximum = {most:g}"


def _scaling(expectation: Scaling, benchmark: Benchmark) -> Iterator[KeyProblem]:
    counts = benchmark.axes.get(expectation.along)
    filled = [name for name in count_axes(benchmark.workload) if benchmark.settings.get(name) == REST]
    if counts is None:
        yield ("along",), f"{expectation.along} is no axis of this benchmark; add it to its axes"
    elif filled and expectation.along != NODES:
        yield ("along",), f"GPUs do not grow along it: {filled[0]} = {REST!r} fills them at every value"
    elif expectation.baseline not in {None, *counts}:
        yield ("baseline",), f"{expectation.baseline} is no value of axis {expectation.along}: {list(counts)}"
    rules = TRAITS_OF[benchmark.workload].scaling_rules
    for breach in rules(benchmark.given, expectation.scaling, expectation.along):
        yield (breach.key,) if breach.key else (), breach.message
