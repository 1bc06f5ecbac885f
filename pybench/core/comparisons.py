"""Whether points of one benchmark are below, or above, points of another, and move further away along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from pybench.core.lookup import claim_state
from pybench.core.measurements import Measurements, absence
from pybench.core.statistics.interval import Interval, NoRatioError
from pybench.core.validity import starvation, valid_ratio
from pybench.core.verdict import Judgement, RowStatistics, change_statistics, judge_comparison, ratio_statistics
from pybench.model.results import ClaimResult, ComparisonResult, Estimate
from pybench.model.suite import Comparison, Point, Skip, Suite
from pybench.model.verdict import Verdict
from pybench.model.workloads.settings import GPU_AXES

_Pair = tuple[Point | Skip, Point | Skip]
"""A point and the other benchmark's."""


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A comparison of one benchmark with its measurements."""

    benchmark: str
    expected: Comparison
    measurements: Measurements

    @property
    def pairs(self) -> Iterator[_Pair]:
        """Comparable points of the two benchmarks."""
        others = [entry for entry in self.measurements.entries if entry.benchmark == self.expected.other]
        for entry in self.measurements.entries:
            for other in others if entry.benchmark == self.benchmark else ():
                shared = (entry.axes.keys() & other.axes.keys()) - {*GPU_AXES}
                if entry.num_gpus == other.num_gpus and all(entry.axes[axis] == other.axes[axis] for axis in shared):
                    yield entry, other

    def absence(self, pair: _Pair) -> tuple[Verdict, str] | None:
        """Verdict and reason of a pair without both values."""
        (entry, other), metric = pair, self.expected.metric
        of = f"{other.benchmark}: "
        return absence(entry, metric, self.measurements) or absence(other, metric, self.measurements, of=of)


def comparison_results(suite: Suite, measurements: Measurements) -> tuple[ComparisonResult, ...]:
    """One row for each comparison and each pair of comparable points.

    Two points are comparable with equal numbers of GPUs and equal values on their common axes, except axes that
    multiply GPUs. A comparison that must widen has one more row for each group of pairs that differ along that axis
    only.
    """
    return tuple(
        row
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        if isinstance(expectation, Comparison) and expectation.claim is None
        for row in _rows(_Compared(benchmark=benchmark.name, expected=expectation, measurements=measurements))
    )


def comparison_claims(suite: Suite, measurements: Measurements) -> tuple[ClaimResult, ...]:
    """Claims about ratios of comparable points, or about their change along an axis, each with the measured ratio."""
    return tuple(
        claim
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        if isinstance(expectation, Comparison) and expectation.claim is not None
        for compared in [_Compared(benchmark=benchmark.name, expected=expectation, measurements=measurements)]
        for pair, first in (_ends(compared) if expectation.widening_along else product(compared.pairs, [None]))
        if (claim := _claim(measurements, expectation, pair, first)) is not None
    )


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
    yield from (_row(compared, pair) for pair in compared.pairs)
    if compared.expected.widening_along is not None:
        yield from (_row(compared, *ends) for ends in _ends(compared))


def _ends(compared: _Compared) -> Iterator[tuple[_Pair, _Pair]]:
    """Last and first pair along the axis, for each group of pairs that differ along the axis only."""
    along, groups = str(compared.expected.widening_along), dict[str, list[_Pair]]()
    for pair in compared.pairs:
        elsewhere = [sorted((name, value) for name, value in entry.axes.items() if name != along) for entry in pair]
        groups.setdefault(repr(elsewhere), []).append(pair)
    for group in groups.values():
        ordered = sorted(group, key=lambda pair: float(pair[0].axes[along]))
        if len(ordered) > 1:
            yield ordered[-1], ordered[0]


def _row(compared: _Compared, pair: _Pair, first: _Pair | None = None) -> ComparisonResult:
    """The row of a pair; with the ``first`` pair along an axis, of the change from there to this last pair."""
    pairs = (pair,) if first is None else (pair, first)
    along = None if first is None else compared.expected.widening_along
    missing = next((absence for each in pairs if (absence := compared.absence(each))), None)
    if missing is not None:
        judged: tuple[Interval | None, Judgement] = None, (*missing, (), None)
    else:
        judged = _judged(compared, pair, first, along)
    interval, (verdict, reason, flags, decision) = judged
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
    points = tuple(point for each in (pair, first) if each for point in _planned(each))
    for other in points[1::2]:
        if (starved := starvation(other, measurements.samples(other))) is not None:
            return evidence.interval, ("inconclusive", f"no valid other: {starved}", ("starved_baseline",), None)
    verdict, reason, decision = judge_comparison(evidence, expected.order, expected.factor, along)
    return evidence.interval, valid_ratio((verdict, reason, (), decision), measurements, points)


def _evidence(measurements: Measurements, metric: str, pair: _Pair, first: _Pair | None) -> RowStatistics:
    """Statistics of a pair's ratio; with the ``first`` pair, of the change from its ratio. Raises ``NoRatioError``."""
    if first is None:
        return ratio_statistics(measurements, metric, *_planned(pair))
    return change_statistics(measurements, metric, _planned(pair), _planned(first))


def _planned(pair: _Pair) -> tuple[Point, Point]:
    point, other = pair
    assert isinstance(point, Point), "what was measured is planned"
    assert isinstance(other, Point), "what was measured is planned"
    return point, other
