"""Whether one benchmark's points stay below, or above, another's, and move further away along an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pybench.core.claims import claim_state
from pybench.core.measurements import Measurements, absence
from pybench.core.statistics.interval import Interval, NoRatioError
from pybench.core.validity import starvation, valid_ratio
from pybench.core.verdict import Judgement, RowStatistics, change_statistics, judge_comparison, ratio_statistics
from pybench.model.results import ClaimResult, ComparisonResult, Estimate
from pybench.model.suite import AxisValue, Comparison, Point, Skip, Suite
from pybench.model.verdict import Verdict
from pybench.model.workloads.settings import GPU_AXES

_Pair = tuple[Point | Skip, Point | Skip]
"""A point and the other benchmark's."""


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A comparison of one benchmark, and what it is judged by."""

    benchmark: str
    expected: Comparison
    measurements: Measurements

    def absence(self, pair: _Pair) -> tuple[Verdict, str] | None:
        """Why one of the two has no value."""
        (entry, other), metric = pair, self.expected.metric
        of = f"{other.benchmark}: "
        return absence(entry, metric, self.measurements) or absence(other, metric, self.measurements, of=of)

    def starvation(self, pair: _Pair) -> str | None:
        """How the other lacked key-value cache, so that nothing may be compared with it."""
        other = pair[1]
        return starvation(other, self.measurements.samples(other)) if isinstance(other, Point) else None


def comparison_results(suite: Suite, measurements: Measurements) -> tuple[ComparisonResult, ...]:
    """One row for each comparison and each pair of comparable points.

    A pair occupies as many GPUs and has the same values on the axes that both have, but for those that multiply GPUs.
    A comparison that must widen has one row more for each group of pairs that differ along that axis only.
    """
    return tuple(
        row
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        if isinstance(expectation, Comparison) and expectation.claim is None
        for row in _rows(_Compared(benchmark=benchmark.name, expected=expectation, measurements=measurements))
    )


def comparison_claims(suite: Suite, measurements: Measurements) -> tuple[ClaimResult, ...]:
    """What somebody claims, beside the ratios of all measured pairs of comparable points, or how these change."""
    return tuple(
        claim
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        if isinstance(expectation, Comparison) and expectation.claim is not None
        for pair, first in _claimed(measurements, benchmark.name, expectation)
        if (claim := _claim(measurements, expectation, pair, first)) is not None
    )


def _claimed(measurements: Measurements, name: str, expected: Comparison) -> Iterator[tuple[_Pair, _Pair | None]]:
    """Each pair that a claim is of, and the first one along the axis where it is of how much further apart they are."""
    pairs = tuple(_pairs(measurements, name, expected.other))
    if expected.widening_along is None:
        yield from ((pair, None) for pair in pairs)
    else:
        yield from ((last, first) for first, last in _ends(pairs, expected.widening_along))


def _claim(measurements: Measurements, expected: Comparison, pair: _Pair, first: _Pair | None) -> ClaimResult | None:
    point, other = pair
    if any(absence(entry, expected.metric, measurements) for entry in (*pair, *(first or ()))):
        return None
    try:
        evidence = _evidence(measurements, expected.metric, pair, first)
    except NoRatioError:
        return None
    ratio, low, high = evidence.interval
    found = Estimate(value=ratio, low=low, high=high, unit="x")
    minimum, maximum = (expected.factor, None) if expected.order == "above" else (None, expected.factor)
    return ClaimResult(
        benchmark=point.benchmark,
        metric=expected.metric,
        point_id=point.id,
        baseline_id=other.id,
        found=found,
        minimum=minimum,
        maximum=maximum,
        state=(state := claim_state(found, minimum, maximum)),
        attempts_to_decide=evidence.decide(minimum, maximum).attempts_to_decide if state == "open" else None,
        source=expected.claim or "",
        table=None,
        widening_along=expected.widening_along,
    )


def _rows(compared: _Compared) -> Iterator[ComparisonResult]:
    pairs = tuple(_pairs(compared.measurements, compared.benchmark, compared.expected.other))
    yield from (_row(compared, pair) for pair in pairs)
    along = compared.expected.widening_along
    if along is not None:
        yield from (_row(compared, last, first, along) for first, last in _ends(pairs, along))


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
    return {name: value for name, value in axes.items() if name not in GPU_AXES}


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


def _row(compared: _Compared, pair: _Pair, first: _Pair | None = None, along: str | None = None) -> ComparisonResult:
    """The row of a pair; with the ``first`` pair along an axis, of how much further apart this last one is."""
    pairs = (pair,) if first is None else (pair, first)
    missing = next((found for each in pairs if (found := compared.absence(each))), None)
    interval: Interval | None = None
    if missing is not None:
        verdict, reason = missing
        flags: tuple[str, ...] = ()
        decision = None
    else:
        interval, (verdict, reason, flags, decision) = _judged(compared, pair, first, along)
    ratio, low, high = interval or (None, None, None)
    return ComparisonResult(
        benchmark=compared.benchmark,
        metric=compared.expected.metric,
        order=compared.expected.order,
        point_id=pair[0].id,
        other_id=pair[1].id,
        ratio=ratio,
        low=low,
        high=high,
        verdict=verdict,
        reason=reason,
        flags=flags,
        widening_along=along,
        first_point_id=None if first is None else first[0].id,
        first_other_id=None if first is None else first[1].id,
        factor=compared.expected.factor if along is None else 1.0,
        decision=decision,
    )


def _judged(
    compared: _Compared, pair: _Pair, first: _Pair | None, along: str | None
) -> tuple[Interval | None, Judgement]:
    measurements, expected = compared.measurements, compared.expected
    try:
        evidence = _evidence(measurements, expected.metric, pair, first)
    except NoRatioError as error:
        return None, ("inconclusive", str(error), ("no_ratio",), None)
    starved = next((words for each in (pair, first) if each and (words := compared.starvation(each))), None)
    if starved is not None:
        return evidence.interval, ("inconclusive", f"no valid other: {starved}", ("starved_baseline",), None)
    verdict, reason, decision = judge_comparison(evidence, expected.order, expected.factor, along)
    points = tuple(point for each in (pair, first) if each for point in _planned(each))
    return evidence.interval, valid_ratio((verdict, reason, (), decision), measurements, points)


def _evidence(measurements: Measurements, metric: str, pair: _Pair, first: _Pair | None) -> RowStatistics:
    """Of a pair's ratio; with the ``first`` pair, of how it changed from there. Raises ``NoRatioError``."""
    if first is None:
        return ratio_statistics(measurements, metric, *_planned(pair))
    return change_statistics(measurements, metric, _planned(pair), _planned(first))


def _planned(pair: _Pair) -> tuple[Point, Point]:
    point, other = pair
    assert isinstance(point, Point), "what was measured is planned"
    assert isinstance(other, Point), "what was measured is planned"
    return point, other
