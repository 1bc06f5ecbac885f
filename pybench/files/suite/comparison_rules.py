"""Rules of expectations that hold one benchmark against another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pybench.files.toml.lines import KeyProblem
from pybench.files.toml.problem_text import did_you_mean
from pybench.model.suite import Benchmark, Comparison
from pybench.model.workloads.registry import METRICS_OF, count_axes


def comparison_problems(benchmarks: Sequence[Benchmark]) -> Iterator[KeyProblem]:
    """The other benchmark must be there, be another, and have the metric and the axis that the distance grows along."""
    others = {benchmark.name: benchmark for benchmark in benchmarks}
    for index, benchmark in enumerate(benchmarks):
        for number, expectation in enumerate(benchmark.expectations):
            if isinstance(expectation, Comparison):
                path = ("benchmark", index, "expect", number)
                problems = (*_widening(expectation, benchmark), *_other(expectation, benchmark, others))
                yield from (((*path, key), message) for key, message in problems)


def _widening(expectation: Comparison, benchmark: Benchmark) -> Iterator[tuple[str, str]]:
    along = expectation.widening_along
    if along is None:
        return
    values = benchmark.axes.get(along)
    if values is None:
        yield "widening_along", f"{along} is no axis of this benchmark; add it to its axes"
    elif along in count_axes(benchmark.workload) or any(isinstance(value, str | bool) for value in values):
        yield "widening_along", f"{along} is no load: it must be an axis of numbers that multiplies no GPUs"


def _other(expectation: Comparison, benchmark: Benchmark, others: Mapping[str, Benchmark]) -> Iterator[tuple[str, str]]:
    found, along, order = expectation.other, expectation.widening_along, expectation.order
    if found not in others or found == benchmark.name:
        names = [name for name in others if name != benchmark.name]
        valid = ", ".join(names) or "none, the suite has no other"
        yield order, f"found {found!r}, no other benchmark{did_you_mean(found, names)}; valid: {valid}"
    elif along is not None and along not in others[found].axes:
        yield order, f"{found!r} has no axis {along}, along which the distance must grow"
    elif expectation.metric not in METRICS_OF[others[found].workload]:
        yield order, f"{found!r} has no metric {expectation.metric}"
