"""What a kept ``results.json`` contradicts of itself: rows, counts and verdict follow from its points.

A figure lies in its interval, and no count, time or probability is below what it can be.

Only what every version's statistics and words have in common is held, so that results of any day can be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pybench.core.counts import overall
from pybench.core.loss_curve import METRIC as LOSS_DEVIATION
from pybench.core.statistics.interval import Interval
from pybench.model.limits import LARGEST
from pybench.model.results import (
    CheckResult,
    ClaimResult,
    ComparisonResult,
    Estimate,
    JobResult,
    JudgedRow,
    NodeCheck,
    PointResult,
    Results,
    ScalingResult,
)
from pybench.model.verdict import Decision, Verdict
from pybench.model.workloads.registry import METRICS

# Figures and ratios are written with all their digits; another build takes their means in another order.
_TOLERANCE = 1e-6
_JUDGED: frozenset[Verdict] = frozenset({"pass", "fail", "inconclusive"})

_Points = Mapping[str, PointResult]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A row's figure with its interval, and the limits that it is held to, of which one may be absent."""

    value: float | None
    low: float | None
    high: float | None
    minimum: float | None
    maximum: float | None

    @property
    def is_known(self) -> bool:
        """Whether there is a figure and a limit to hold it to."""
        return self.value is not None and (self.minimum is not None or self.maximum is not None)

    @property
    def is_beyond(self) -> bool:
        """Whether the figure, or the whole interval, lies on the failing side of a limit."""
        figure = [] if self.value is None else [self.value]
        interval = [end for end in (self.low, self.high) if end is not None]
        return any(
            (self.minimum is not None and max(numbers) < self.minimum)
            or (self.maximum is not None and min(numbers) > self.maximum)
            for numbers in (figure, interval)
            if numbers
        )


def contradiction(results: Results) -> str | None:
    """The first contradiction with its place, ``None`` where there is none."""
    return next(_contradictions(results), None)


def _contradictions(results: Results) -> Iterator[str]:
    points = {point.id: point for point in results.points}
    lists: dict[str, tuple[JudgedRow, ...]] = {
        "scaling": results.scaling,
        "checks": results.checks,
        "comparisons": results.comparisons,
        "node": results.node,
    }
    for name, rows in lists.items():
        for number, row in enumerate(rows):
            yield from (f"{name}.{number}: {words}" for words in _of_row(row, points))
            yield from (f"{name}.{number}.decision.{words}" for words in _of_decision(row.decision))
    unjudged: dict[str, tuple[ClaimResult | JobResult, ...]] = {"claims": results.claims, "jobs": results.jobs}
    for name, others in unjudged.items():
        for number, other in enumerate(others):
            named = (other.point_id, other.baseline_id or other.point_id)
            yield from (f"{name}.{number}: {words}" for words in _absent(named, points))
    yield from _of_counts(results)
    yield from _of_verdict(results)
    for number, point in enumerate(results.points):
        yield from (f"points.{number}.{words}" for words in _of_point(point))
    for place, (value, low, high) in _intervals(results):
        if (low is not None and value < low - _TOLERANCE * abs(low)) or (
            high is not None and value > high + _TOLERANCE * abs(high)
        ):
            ends = " to ".join("" if end is None else f"{end:g}" for end in (low, high))
            yield f"{place}: {value:g} lies outside its interval, {ends.strip()}"


def _of_point(point: PointResult) -> Iterator[str]:
    """Counts and times that can be."""
    counts = {
        "num_gpus": (point.num_gpus, 1),
        "attempts": (point.attempts, 0),
        "failed_attempts": (point.failed_attempts, 0),
    }
    yield from (f"{name}: {number} is no count" for name, (number, least) in counts.items() if number < least)
    if point.failed_attempts > point.attempts:
        yield f"failed_attempts: {point.failed_attempts} of {point.attempts} attempts"
    for number, phase in enumerate(point.energy_phases):
        if phase.duration_s < 0:
            yield f"energy_phases.{number}.duration_s: {phase.duration_s:g} is no time"


def _of_decision(decision: Decision | None) -> Iterator[str]:
    """Counts and probabilities that can be."""
    if decision is None:
        return
    for name in ("num_attempts", "num_points", "attempts_to_decide"):
        if (getattr(decision, name) or 0) < 0:
            yield f"{name}: {getattr(decision, name)} is no count"
    for name in ("p_pass", "p_fail", "pass_level", "fail_level"):
        if not 0 <= getattr(decision, name) <= 1:
            yield f"{name}: {getattr(decision, name):g} is no probability"


def _intervals(results: Results) -> Iterator[tuple[str, Interval]]:
    """Every figure with its ends and its place."""
    estimates: list[tuple[str, Estimate | None]] = []
    for number, point in enumerate(results.points):
        estimates += [(f"points.{number}.metrics.{name}", found) for name, found in point.metrics.items()]
        for part, phase in enumerate(point.energy_phases):
            if phase.energy_j is not None:
                yield f"points.{number}.energy_phases.{part}.energy_j", (phase.energy_j, phase.low_j, phase.high_j)
    estimates += [(f"claims.{number}.found", claim.found) for number, claim in enumerate(results.claims)]
    for number, job in enumerate(results.jobs):
        names = ("time_h", "energy_j", "time_saved_fraction", "energy_saved_fraction")
        estimates += [(f"jobs.{number}.{name}", getattr(job, name)) for name in names]
    yield from ((place, (found.value, found.low, found.high)) for place, found in estimates if found is not None)
    for kind in ("scaling", "comparisons"):
        for number, row in enumerate(getattr(results, kind)):
            figure = _found(row)
            if figure.value is not None:
                yield f"{kind}.{number}", (figure.value, figure.low, figure.high)


def _of_row(row: JudgedRow, points: _Points) -> Iterator[str]:
    # The baseline of a ratio that was not measured may be in no plan: -k left it out.
    is_bare = isinstance(row, ScalingResult) and row.speedup is None and row.verdict not in _JUDGED
    absent = list(_absent(row.point_ids[:1] if is_bare else row.point_ids, points))
    yield from absent
    if absent:
        return
    yield from _of_figures(row, points)
    if row.verdict == "pass":
        yield from _of_pass(row, points)
    elif row.verdict not in _JUDGED and _found(row).is_known:
        yield f"{row.verdict}, though it has a figure and a limit"


def _absent(names: tuple[str, ...], points: _Points) -> Iterator[str]:
    yield from (f"{name} is none of the points" for name in dict.fromkeys(names) if name not in points)


def _of_figures(row: JudgedRow, points: _Points) -> Iterator[str]:
    """The row's figure is that of its points: the metric itself, or a quotient."""
    if isinstance(row, NodeCheck) or row.metric == LOSS_DEVIATION:
        return
    metrics = [points[name].metrics.get(row.metric) for name in row.point_ids if name in points]
    if isinstance(row, CheckResult):
        if row.value != metrics[0]:
            yield f"its value is not the {row.metric} of {row.point_id}"
        return
    ratio = row.speedup if isinstance(row, ScalingResult) else row.ratio
    if ratio is None:
        return
    values = [found.value for found in metrics if found is not None and found.value > 0]
    if len(values) < len(row.point_ids):
        yield f"a ratio of points without {row.metric}"
    elif not math.isclose(ratio, _quotient(values), rel_tol=_TOLERANCE):
        yield f"its ratio {ratio:g} is not that of its points, {_quotient(values):g}"


def _quotient(values: list[float]) -> float:
    """Of two, or of two quotients; of logarithms, since what nothing measured may have any size."""
    top, base, *first = map(math.log, values)
    change = top - base - (first[0] - first[1] if first else 0.0)
    return math.exp(min(change, math.log(LARGEST)))


def _of_pass(row: JudgedRow, points: _Points) -> Iterator[str]:
    """A pass has points that were measured, a figure, and that on the right side of its limit."""
    unmeasured = [name for name in row.point_ids if points[name].status != "ok"]
    found = _found(row)
    if unmeasured:
        yield f"a pass without a measurement of {unmeasured[0]}"
    elif isinstance(row, NodeCheck) and row.value is None and row.limit is None:
        return  # by what the driver reports
    elif not isinstance(row, NodeCheck) and row.metric not in {*METRICS, LOSS_DEVIATION}:
        yield f"a pass of {row.metric}, which is no metric"
    elif found.value is None:
        yield "a pass without a figure"
    elif found.minimum is None and found.maximum is None:
        yield "a pass without a limit"
    elif found.is_beyond:
        limits = " to ".join("" if limit is None else f"{limit:g}" for limit in (found.minimum, found.maximum))
        yield f"a pass whose figure {found.value:g} lies outside its limits, {limits.strip()}"
    elif (
        not isinstance(row, NodeCheck)
        and row.metric != LOSS_DEVIATION
        and None in {found.low, found.high}
        and not (isinstance(row, CheckResult) and row.decision and row.decision.is_by_other_runs)
    ):
        yield "a pass without an interval"
    elif row.decision is not None and row.decision.p_pass > row.decision.pass_level:
        yield f"a pass with p_pass {row.decision.p_pass:g}, above its level {row.decision.pass_level:g}"


def _found(row: JudgedRow) -> _Found:
    """By the limits that decide a pass: of ratios and figures of a table the worse side alone."""
    if isinstance(row, CheckResult):
        value, low, high = (row.value.value, row.value.low, row.value.high) if row.value else (None, None, None)
        return _Found(value=value, low=low, high=high, minimum=row.minimum, maximum=row.maximum)
    if isinstance(row, NodeCheck):
        is_least = row.limit is not None and row.limit < 0
        least, most = (row.limit, None) if is_least else (None, row.limit)
        return _Found(value=row.value, low=None, high=None, minimum=least, maximum=most)
    if isinstance(row, ComparisonResult):
        limit = row.factor if row.widening_along is None else 1.0
        least, most = (limit, None) if row.order == "above" else (None, limit)
        return _Found(value=row.ratio, low=row.low, high=row.high, minimum=least, maximum=most)
    more = row.metric in METRICS and METRICS[row.metric].higher_is_better
    least, most = (row.expected.minimum, row.expected.maximum) if row.expected else (None, None)
    return _Found(
        value=row.speedup,
        low=row.speedup_low,
        high=row.speedup_high,
        minimum=least if more else None,
        maximum=None if more else most,
    )


def _of_counts(results: Results) -> Iterator[str]:
    """Counts are of the rows but losses. Nothing shows of a ratio without a figure in a table whether it counts."""
    counts = results.counts
    rows = [row for row in results.rows if not (isinstance(row, CheckResult) and row.metric == LOSS_DEVIATION)]
    certain = [row.verdict for row in rows if not (isinstance(row, ScalingResult) and row.expected is None)]
    possible = [row.verdict for row in rows]
    # A check of the node that judges nothing counts nowhere.
    num_open = sum(check.verdict == "no_expectation" for check in results.node)
    unjudged: tuple[Verdict, ...] = ("missing", "error", "no_expectation")
    least, most = (sum(map(found.count, unjudged)) - num_open for found in (certain, possible))
    claimed: tuple[tuple[str, Verdict, int], ...] = (
        ("passed", "pass", counts.passed),
        ("failed", "fail", counts.failed),
        ("inconclusive", "inconclusive", counts.inconclusive),
    )
    for name, verdict, number in claimed:
        if not certain.count(verdict) <= number <= possible.count(verdict):
            yield f"counts.{name}: {number} is claimed, its rows have {possible.count(verdict)}"
    if counts.judged != counts.passed + counts.failed + counts.inconclusive:
        yield f"counts.judged: {counts.judged} is not the sum of passed, failed and inconclusive"
    rest = counts.missing + counts.without_figure + counts.left_out
    if min(counts.missing, counts.without_figure, counts.left_out) < 0 or not least <= rest <= most:
        yield f"counts: {rest} without a judgement are claimed, its rows have {most}"
    if counts.expected != counts.judged + rest:
        yield f"counts.expected: {counts.expected} is not the sum of what was judged and what was not"


def _of_verdict(results: Results) -> Iterator[str]:
    """The verdict follows; what only the plan shows, owed attempts and packages that are absent, makes it missing."""
    verdict, _ = overall(results.points, results.rows, counts=results.counts, left_out=results.left_out)
    containment = results.provenance.containment
    if verdict == "pass" and containment is not None and not containment.pinned:
        verdict = "inconclusive"
    if results.verdict == verdict or (results.verdict == "missing" and verdict not in {"fail", "error"}):
        return
    yield f"verdict: {results.verdict} is claimed, {verdict} follows from its rows and points"
