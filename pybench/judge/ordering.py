"""Whether one benchmark's points stay below, or above, another's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pybench.compute.stats import ratio
from pybench.judge.absence import absence
from pybench.judge.summary import metric_samples
from pybench.judge.verdict import judge_order
from pybench.model.record import Record
from pybench.model.results import Order, OrderResult
from pybench.model.suite import AxisValue, Benchmark, Expectation, Plan, Point, Skip, Suite


@dataclass(frozen=True, kw_only=True)
class _Asked:
    benchmark: str
    metric: str
    order: Order


def order_results(suite: Suite, plan: Plan, records: Sequence[Record]) -> tuple[OrderResult, ...]:
    """One row for each expected order and each pair of points that can be told against each other.

    A pair occupies as many GPUs and has the same values on the axes that both have, but for those that multiply GPUs.
    """
    return tuple(
        row
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        for row in _rows(benchmark, expectation, plan, records)
    )


def _rows(
    benchmark: Benchmark, expectation: Expectation, plan: Plan, records: Sequence[Record]
) -> Iterator[OrderResult]:
    for order, other_name in (("below", expectation.below), ("above", expectation.above)):
        if other_name is not None:
            asked = _Asked(
                benchmark=benchmark.name,
                metric=expectation.metric,
                order="below" if order == "below" else "above",
            )
            for entry, other in _pairs(plan, benchmark.name, other_name):
                yield _row(asked, entry, other, plan, records)


def _pairs(plan: Plan, name: str, other_name: str) -> Iterator[tuple[Point | Skip, Point | Skip]]:
    everything: list[Point | Skip] = [*plan.points, *plan.skips, *plan.left_out]
    others = [entry for entry in everything if entry.benchmark == other_name]
    for entry in everything:
        if entry.benchmark == name:
            yield from ((entry, other) for other in others if _comparable(entry, other))


def _comparable(entry: Point | Skip, other: Point | Skip) -> bool:
    own, theirs = _work_axes(entry.axes), _work_axes(other.axes)
    shared = own.keys() & theirs.keys()
    return entry.num_gpus == other.num_gpus and all(own[name] == theirs[name] for name in shared)


def _work_axes(axes: dict[str, AxisValue]) -> dict[str, AxisValue]:
    return {name: value for name, value in axes.items() if not name.endswith("_parallel")}


def _row(asked: _Asked, entry: Point | Skip, other: Point | Skip, plan: Plan, records: Sequence[Record]) -> OrderResult:
    value = low = high = None
    missing = absence(entry, asked.metric, plan, records) or absence(other, asked.metric, plan, records, of="other: ")
    if missing is None and isinstance(entry, Point) and isinstance(other, Point):
        samples, against = (metric_samples(point, records)[asked.metric] for point in (entry, other))
        value, low, high = ratio(samples, against)
        verdict, reason = judge_order(value, low, high, asked.order)
    else:
        assert missing is not None, "a point that is not in the plan is absent"
        verdict, reason = missing
    return OrderResult(
        benchmark=asked.benchmark,
        metric=asked.metric,
        order=asked.order,
        point_id=entry.id,
        other_id=other.id,
        ratio=value,
        low=low,
        high=high,
        verdict=verdict,
        reason=reason,
    )
