"""Whether one benchmark's points stay below, or above, another's, and move further away along an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pybench.compute.stats import Samples, ratio, ratio_change
from pybench.judge.absence import absence
from pybench.judge.measurements import Measurements
from pybench.judge.validity import starvation
from pybench.judge.verdict import judge_order
from pybench.model.results import OrderResult, Verdict
from pybench.model.suite import AxisValue, Benchmark, Expectation, Order, Point, Skip, Suite

_Pair = tuple[Point | Skip, Point | Skip]
"""A point and the other benchmark's."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is asked of every pair, and everything that answers it."""

    benchmark: str
    metric: str
    order: Order
    measurements: Measurements

    def samples(self, pair: _Pair) -> tuple[Samples, Samples]:
        """What both measured, where neither is absent."""
        own, other = (self.measurements.samples(entry)[self.metric] for entry in pair)
        return own, other

    def absence(self, pair: _Pair) -> tuple[Verdict, str] | None:
        """Why one of the two has no value."""
        entry, other = pair
        return absence(entry, self.metric, self.measurements) or absence(
            other, self.metric, self.measurements, of="other: "
        )

    def hunger(self, pair: _Pair) -> str | None:
        """How the other, against which the point is told, lacked key-value cache."""
        other = pair[1]
        return starvation(other, self.measurements.samples(other)) if isinstance(other, Point) else None


def order_results(suite: Suite, measurements: Measurements) -> tuple[OrderResult, ...]:
    """One row for each expected order and each pair of points that can be told against each other.

    A pair occupies as many GPUs and has the same values on the axes that both have, but for those that multiply GPUs.
    An order that must widen has one row more for each group of pairs that differ along that axis only.
    """
    return tuple(
        row
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        for row in _rows(benchmark, expectation, measurements)
    )


def _rows(benchmark: Benchmark, expectation: Expectation, measurements: Measurements) -> Iterator[OrderResult]:
    if expectation.order is None:
        return
    order, other_name = expectation.order
    asked = _Asked(benchmark=benchmark.name, metric=expectation.metric, order=order, measurements=measurements)
    pairs = tuple(_pairs(measurements, benchmark.name, other_name))
    yield from (_row(asked, pair) for pair in pairs)
    along = expectation.widening_along
    if along is not None:
        yield from (_row(asked, last, first, along) for first, last in _ends(pairs, along))


def _pairs(measurements: Measurements, name: str, other_name: str) -> Iterator[_Pair]:
    others = [entry for entry in measurements.entries if entry.benchmark == other_name]
    for entry in measurements.entries:
        if entry.benchmark == name:
            yield from ((entry, other) for other in others if _comparable(entry, other))


def _comparable(entry: Point | Skip, other: Point | Skip) -> bool:
    own, theirs = _work_axes(entry.axes), _work_axes(other.axes)
    shared = own.keys() & theirs.keys()
    return entry.num_gpus == other.num_gpus and all(own[name] == theirs[name] for name in shared)


def _work_axes(axes: dict[str, AxisValue]) -> dict[str, AxisValue]:
    return {name: value for name, value in axes.items() if not name.endswith("_parallel")}


def _ends(pairs: Sequence[_Pair], along: str) -> Iterator[tuple[_Pair, _Pair]]:
    """Of the pairs that differ along the axis only: those at its least and at its greatest value."""
    groups: dict[str, list[_Pair]] = {}
    for pair in pairs:
        elsewhere = [sorted((name, value) for name, value in entry.axes.items() if name != along) for entry in pair]
        groups.setdefault(repr(elsewhere), []).append(pair)
    for group in groups.values():
        ordered = sorted(group, key=lambda pair: float(pair[0].axes[along]))
        if len(ordered) > 1:
            yield ordered[0], ordered[-1]


def _row(asked: _Asked, pair: _Pair, first: _Pair | None = None, along: str | None = None) -> OrderResult:
    """The row of a pair; with the ``first`` pair along an axis, of how much further apart this last one is."""
    pairs = (pair,) if first is None else (pair, first)
    missing = next((found for each in pairs if (found := asked.absence(each))), None)
    value = low = high = None
    flags: tuple[str, ...] = ()
    if missing is not None:
        verdict, reason = missing
    else:
        own = asked.samples(pair)
        value, low, high = ratio(*own) if first is None else ratio_change(own, asked.samples(first))
        verdict, reason = judge_order(value, low, high, asked.order, along)
        hunger = next((words for each in pairs if (words := asked.hunger(each))), None)
        if hunger is not None:
            verdict, reason, flags = "inconclusive", f"no valid other: {hunger}", ("starved_baseline",)
    return OrderResult(
        benchmark=asked.benchmark,
        metric=asked.metric,
        order=asked.order,
        point_id=pair[0].id,
        other_id=pair[1].id,
        ratio=value,
        low=low,
        high=high,
        verdict=verdict,
        reason=reason,
        flags=flags,
        widening_along=along,
        first_point_id=None if first is None else first[0].id,
        first_other_id=None if first is None else first[1].id,
    )
