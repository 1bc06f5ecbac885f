"""Whether points of one benchmark are below, or above, points of another, and move further away along an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from pybench.core.lookup import judged_claim
from pybench.core.measurements import Measurements, absence, grouped
from pybench.core.plan import are_comparable
from pybench.core.statistics.interval import NoRatioError
from pybench.core.validity import judged_points
from pybench.core.verdict import Judgement, RowStatistics, judge_comparison, row_statistics
from pybench.model.results import ClaimResult, ComparisonResult, Estimate
from pybench.model.suite import Comparison, Point, Skip, Suite

_Pair = tuple[Point | Skip, Point | Skip]
"""A point and the other benchmark's."""


def comparison_results(suite: Suite, measurements: Measurements) -> tuple[ComparisonResult, ...]:
    """One row for each comparison and each pair of comparable points.

    A comparison that must widen has one more row for each group of pairs that differ along that axis only.
    """
    return tuple(_row(measurements, *compared) for compared in _compared(suite, measurements, are_claims=False))


def comparison_claims(suite: Suite, measurements: Measurements) -> Iterator[ClaimResult]:
    """Claims about ratios of comparable points, or about their change along an axis, each with the measured ratio."""
    for expected, pair, first in _compared(suite, measurements, are_claims=True):
        entries = (*pair, *(first or ()))
        if any(absence(entry, expected.metric, measurements) for entry in entries):
            continue
        points = [entry for entry in entries if isinstance(entry, Point)]
        try:
            evidence = row_statistics(measurements, expected.metric, points[::3], points[1:3])
        except NoRatioError:
            continue
        limits = (expected.factor, None) if expected.order == "above" else (None, expected.factor)
        claim = ClaimResult(
            benchmark=pair[0].benchmark,
            metric=expected.metric,
            point_id=pair[0].id,
            baseline_id=pair[1].id,
            found=Estimate(value=evidence.interval[0], low=None, high=None, unit="x"),
            minimum=limits[0],
            maximum=limits[1],
            state="open",
            source=expected.claim or "",
            table=None,
            widening_along=expected.widening_along,
        )
        yield judged_claim(claim, evidence)


def _compared(
    suite: Suite, measurements: Measurements, *, are_claims: bool
) -> Iterator[tuple[Comparison, _Pair, _Pair | None]]:
    """Each pair of a comparison; along an axis, the last pair with the first one. A claim is about one of the two."""
    for benchmark in suite.benchmarks:
        for expected in benchmark.expectations:
            if not isinstance(expected, Comparison) or (expected.claim is not None) != are_claims:
                continue
            pairs = [
                (entry, other)
                for entry, other in product(measurements.entries, repeat=2)
                if entry.benchmark == benchmark.name and other.benchmark == expected.other
                if are_comparable(entry, other)
            ]
            along = expected.widening_along
            if along is None or not are_claims:
                yield from ((expected, pair, None) for pair in pairs)
            if along is not None:
                yield from ((expected, *ends) for ends in _ends(pairs, along))


def _ends(pairs: Sequence[_Pair], along: str) -> Iterator[tuple[_Pair, _Pair]]:
    """Last and first pair along the axis, for each group of pairs that differ along the axis only."""

    def elsewhere(pair: _Pair) -> str:
        return repr([sorted((name, value) for name, value in entry.axes.items() if name != along) for entry in pair])

    for group in grouped((elsewhere(pair), pair) for pair in pairs).values():
        ordered = sorted(group, key=lambda pair: float(pair[0].axes[along]))
        if len(ordered) > 1:
            yield ordered[-1], ordered[0]


def _row(measurements: Measurements, expected: Comparison, pair: _Pair, first: _Pair | None) -> ComparisonResult:
    """The row of a pair; with the ``first`` pair along an axis, of the change from there to this last pair."""
    entries = (*pair, *(first or ()))
    of = (f"{entry.benchmark}: " if place % 2 else "" for place, entry in enumerate(entries))
    absences = (absence(entry, expected.metric, measurements, words) for entry, words in zip(entries, of, strict=True))
    missing = next(filter(None, absences), None)

    def judge(evidence: RowStatistics) -> Judgement:
        return judge_comparison(evidence, expected.order, expected.factor, expected.widening_along if first else None)

    points = [entry for entry in entries if isinstance(entry, Point)]
    interval, judgement = (
        judged_points(measurements, expected.metric, points, "other", judge)
        if missing is None
        else (None, Judgement(*missing))
    )
    ratio, low, high = interval or (None, None, None)
    return ComparisonResult(
        benchmark=pair[0].benchmark,
        metric=expected.metric,
        order=expected.order,
        point_id=pair[0].id,
        other_id=pair[1].id,
        ratio=ratio,
        low=low,
        high=high,
        widening_along=None if first is None else expected.widening_along,
        first_point_id=None if first is None else first[0].id,
        first_other_id=None if first is None else first[1].id,
        factor=expected.factor if first is None else 1.0,
        **judgement._asdict(),
    )
