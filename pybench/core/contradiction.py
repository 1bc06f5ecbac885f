"""Contradictions within a kept ``results.json``: its rows, counts and verdict follow from its points.

The rules are common to the statistics and words of every version, so that older results can be read. They find damage
and slips, no forger: ``pybench verify`` assembles results again from the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pybench.core.counts import overall
from pybench.core.loss_curve import METRIC as LOSS_DEVIATION
from pybench.model.results import (
    CheckResult,
    ComparisonResult,
    JudgedRow,
    NodeCheck,
    PointResult,
    Results,
    ScalingResult,
)
from pybench.model.verdict import Verdict
from pybench.model.workloads.registry import METRICS

_JUDGED: frozenset[Verdict] = frozenset({"pass", "fail", "inconclusive"})


@dataclass(frozen=True)
class _Figure:
    """A row's figure with its interval, and the limits for a pass; one may be absent."""

    value: float | None
    low: float | None
    high: float | None
    minimum: float | None
    maximum: float | None

    @property
    def has_limit(self) -> bool:
        """Whether it can be judged."""
        return self.minimum is not None or self.maximum is not None

    @property
    def is_beyond(self) -> bool:
        """Whether the figure, or the whole interval, is on the failing side of a limit."""
        least = max((end for end in (self.low, self.high) if end is not None), default=self.value)
        most = min((end for end in (self.low, self.high) if end is not None), default=self.value)
        return any(
            (self.minimum is not None and high is not None and high < self.minimum)
            or (self.maximum is not None and low is not None and low > self.maximum)
            for low, high in ((self.value, self.value), (most, least))
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
    for number, point in enumerate(results.points):
        if point.num_gpus < 1:
            yield f"points.{number}.num_gpus: {point.num_gpus} is no count"
        if not 0 <= point.failed_attempts <= point.attempts:
            yield f"points.{number}.failed_attempts: {point.failed_attempts} of {point.attempts} attempts"
    yield from _of_counts(results)
    verdict, _ = overall(results.points, results.rows, counts=results.counts, left_out=results.left_out)
    containment = results.provenance.containment
    if verdict == "pass" and containment is not None and not containment.pinned:
        verdict = "inconclusive"
    # Owed attempts and absent packages, which only the plan shows, make a verdict missing.
    if results.verdict != verdict and (results.verdict != "missing" or verdict in {"fail", "error"}):
        yield f"verdict: {results.verdict} is claimed, {verdict} follows from its rows and points"


def _of_row(row: JudgedRow, points: Mapping[str, PointResult]) -> Iterator[str]:
    """A row has its points, and a figure with a limit is judged."""
    # The baseline of a ratio that was not measured may be in no plan: -k left it out.
    is_bare = isinstance(row, ScalingResult) and row.speedup is None and row.verdict not in _JUDGED
    names = row.point_ids[:1] if is_bare else row.point_ids
    if absent := [name for name in names if name not in points]:
        yield f"{absent[0]} is none of the points"
    elif row.verdict == "pass":
        yield from _of_pass(row, points)
    elif row.verdict not in _JUDGED and (figure := _figure(row)).value is not None and figure.has_limit:
        yield f"{row.verdict}, though it has a figure and a limit"


def _of_pass(row: JudgedRow, points: Mapping[str, PointResult]) -> Iterator[str]:
    """A pass has measured points with the metric, and a figure on the right side of its limit."""
    yield from (f"a pass without a measurement of {name}" for name in row.point_ids if points[name].status != "ok")
    figure = _figure(row)
    if isinstance(row, NodeCheck):
        if row.value is None and row.limit is None:
            return  # by the driver's report
    elif row.metric != LOSS_DEVIATION:
        if row.metric not in METRICS:
            yield f"a pass of {row.metric}, which is no metric"
        yield from (
            f"a pass without {row.metric} of {name}" for name in row.point_ids if row.metric not in points[name].metrics
        )
        is_by_other_runs = isinstance(row, CheckResult) and row.decision and row.decision.is_by_other_runs
        if figure.value is not None and None in {figure.low, figure.high} and not is_by_other_runs:
            yield "a pass without an interval"
    if figure.value is None:
        yield "a pass without a figure"
    elif not figure.has_limit:
        yield "a pass without a limit"
    elif figure.is_beyond:
        limits = " to ".join("" if limit is None else f"{limit:g}" for limit in (figure.minimum, figure.maximum))
        yield f"a pass whose figure {figure.value:g} is outside its limits, {limits.strip()}"


def _figure(row: JudgedRow) -> _Figure:
    """With the limits that decide a pass: the worse side alone of ratios and of figures of a table."""
    if isinstance(row, CheckResult):
        value, low, high = (row.value.value, row.value.low, row.value.high) if row.value else (None, None, None)
        return _Figure(value, low, high, row.minimum, row.maximum)
    if isinstance(row, NodeCheck):
        is_least = row.limit is not None and row.limit < 0
        return _Figure(row.value, None, None, row.limit if is_least else None, None if is_least else row.limit)
    if isinstance(row, ComparisonResult):
        limit = row.factor if row.widening_along is None else 1.0
        least, most = (limit, None) if row.order == "above" else (None, limit)
        return _Figure(row.ratio, row.low, row.high, least, most)
    more = row.metric in METRICS and METRICS[row.metric].higher_is_better
    least, most = (row.expected.minimum, row.expected.maximum) if row.expected else (None, None)
    return _Figure(row.speedup, row.speedup_low, row.speedup_high, least if more else None, None if more else most)


def _of_counts(results: Results) -> Iterator[str]:
    """Counts are of all rows but losses. A ratio without a figure in a table counts or not: only the suite shows it."""
    counts = results.counts
    rows = [row for row in results.rows if not (isinstance(row, CheckResult) and row.metric == LOSS_DEVIATION)]
    certain = [row.verdict for row in rows if not (isinstance(row, ScalingResult) and row.expected is None)]
    possible = [row.verdict for row in rows]
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
    if counts.expected != counts.judged + counts.missing + counts.without_figure + counts.left_out:
        yield f"counts.expected: {counts.expected} is not the sum of the judged rows and the others"
