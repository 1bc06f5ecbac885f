"""Which expectation a row of scaling is of."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.model.results import ScalingResult
from pybench.model.suite import Benchmark, Scaling, Suite


def expectations_of(suite: Suite, row: ScalingResult) -> Iterator[Scaling]:
    """Those that the row is of; several where they differ in their tables alone."""
    for benchmark in suite.benchmarks:
        for expectation in benchmark.expectations:
            if isinstance(expectation, Scaling) and is_row_of(row, benchmark, expectation):
                yield expectation


def is_row_of(row: ScalingResult, benchmark: Benchmark, expectation: Scaling) -> bool:
    """Whether the row is of this expectation; one metric may have several along an axis, each with its baseline."""
    named = (benchmark.name, expectation.metric, expectation.along)
    if (row.benchmark, row.metric, row.along) != named:
        return False
    return row.baseline_count == baseline_count(benchmark, expectation)


def baseline_count(benchmark: Benchmark, expectation: Scaling) -> int:
    """The axis's value whose points are the baselines: the suite decides it, not what ``-k`` kept."""
    if expectation.baseline is not None:
        return expectation.baseline
    return min(value for value in benchmark.axes[expectation.along] if isinstance(value, int))
