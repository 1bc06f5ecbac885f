"""Counts of a suite's judged expectations, the verdict of a run, and whether both follow from its rows."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import groupby

from pybench.core.loss_curve import METRIC as LOSS_DEVIATION
from pybench.core.node_checks import SLOWEST
from pybench.core.node_faults import faults, is_consequence
from pybench.core.scaling import expectations_of
from pybench.model.machine import GpuInfo
from pybench.model.results import (
    CheckResult,
    ComparisonResult,
    ExpectationRow,
    JudgedRow,
    NodeCheck,
    PointResult,
    Results,
    ScalingResult,
)
from pybench.model.suite import Plan, Skip, Suite
from pybench.model.text import plural
from pybench.model.verdict import Counts, Verdict
from pybench.model.workloads.registry import METRICS

_MOST_NAMED = 3


def count(
    suite: Suite, plan: Plan, rows: Sequence[ExpectationRow], node: Sequence[NodeCheck], measured: Container[str] = ()
) -> Counts:
    """Count rows by their outcome. A ratio without a table or a prediction is shown, and is no expectation.

    ``measured`` are ids of points with figures. A metric that such a point lacks (joules without a driver) and that no
    row of a table would judge is not *missing*.
    """
    expected = [
        row
        for row in rows
        if not isinstance(row, ScalingResult)
        or row.expected is not None
        or {each.table for each in expectations_of(suite, row)} != {None}
    ]
    in_plan = {point.id for point in plan.points} | {skip.id for skip in plan.skips}
    unjudged = [row for row in expected if row.verdict == "no_expectation"]
    left_out = sum(not in_plan.issuperset(row.point_ids) for row in unjudged)
    # A ratio of zeros has measured values.
    lacking = [row for row in unjudged if _figure(row)[0] is None and "no_ratio" not in getattr(row, "flags", ())]
    unmeasured = sum(all(name in measured for name in row.point_ids) for row in lacking)
    verdicts = [row.verdict for row in expected] + [row.verdict for row in node if row.verdict != "no_expectation"]
    passed, failed, undecided = (verdicts.count(verdict) for verdict in ("pass", "fail", "inconclusive"))
    return Counts(
        expected=len(verdicts),
        judged=passed + failed + undecided,
        passed=passed,
        failed=failed,
        inconclusive=undecided,
        missing=verdicts.count("missing") + verdicts.count("error") + unmeasured,
        without_figure=len(unjudged) - left_out - unmeasured,
        left_out=left_out,
    )


def counted(counts: Counts, machine: str, left_out: Sequence[str]) -> str:
    """``6 of 8 expectations judged; 1 has no row for h100; 1 left out: 8 GPUs (4 here)``; ``left_out`` by the plan."""
    lacks = f"{'has' if counts.without_figure == 1 else 'have'} no row for {machine}"
    rest = ((counts.without_figure, lacks), (counts.left_out, "left out"), (counts.missing, "not measured"))
    parts = [f"{number} {words}" for number, words in rest if number]
    before = ": " if counts.left_out and not counts.missing else "; left out: "
    named = f"{before}{left_out_text(left_out)}" if left_out else ""
    return "; ".join((f"{counts.judged} of {plural(counts.expected, 'expectation')} judged", *parts)) + named


def left_out_text(left_out: Sequence[str]) -> str:
    """The first three, a shared reason once: ``4 GPUs (2 here); torch, vllm (not installed) (and 2 more)``."""
    groups = groupby(left_out[:_MOST_NAMED], key=lambda text: "".join(text.partition(" (")[1:]))
    texts = (
        (", " if reason else "; ").join(t.removesuffix(reason) for t in group) + reason for reason, group in groups
    )
    more = len(left_out) - _MOST_NAMED
    return "; ".join(texts) + (f" (and {more} more)" if more > 0 else "")


# The worst verdict decides. A fail stands before an error: what did measure was too slow, whatever else broke.
BY_IMPORTANCE: tuple[Verdict, ...] = ("fail", "error", "missing", "inconclusive")


def overall(
    points: Sequence[PointResult],
    rows: Sequence[JudgedRow],
    guards: Sequence[CheckResult] = (),
    *,
    counts: Counts,
    machine: str = "this machine",
    left_out: Sequence[str] = (),
    skips: Sequence[Skip] = (),
    num_owed: int = 0,
    gpus: Sequence[GpuInfo] = (),
    is_pinned: bool = True,
) -> tuple[Verdict, str]:
    """Verdict of a run, and what decided it.

    ``counts`` are of the ``rows``, ``left_out`` names what the plan leaves out; ``skips`` that lack something were
    required. ``num_owed`` attempts are to be made yet, those of points that were not measured among them. ``guards``
    are checks outside of any suite: a fail decides the verdict, a pass alone decides nothing. ``gpus`` are those of the
    machine, whose faults are named first. A run in an image that is not pinned never passes.
    """
    broken = faults([row for row in rows if isinstance(row, NodeCheck)], points, gpus)
    others = [row for row in (*rows, *guards) if not is_consequence(row, broken)]
    named: list[tuple[Verdict, str]] = [
        *(("fail", fault.sentence) for fault in broken),
        *((row.verdict, f"{_subject(row)}: {row.reason}") for row in others),
        *(("error", _with_reason(point)) for point in points if point.status == "failed"),
        *(("missing", f"{p.id}: {p.reason}") for p in points if p.status == "missing" and not num_owed),
        *(("missing", f"{skip.id}: {skip.reason}") for skip in skips if skip.lacks is not None),
    ]
    if num_owed:
        named.append(("missing", f"{plural(num_owed, 'attempt')} to be made"))
    for verdict in BY_IMPORTANCE:
        culprits = [reason for found, reason in named if found == verdict]
        if culprits:
            return verdict, _first_of(culprits)
    if not any(point.status == "ok" for point in points):
        return _of_nothing(points, left_out, skips)
    if counts.passed and not is_pinned:
        return "inconclusive", "every expectation passes, but in an image that isn't pinned"
    if counts.passed:
        return "pass", counted(counts, machine, left_out)
    if counts.expected:
        return "no_expectation", f"nothing was judged: {counted(counts, machine, left_out)}"
    rest = f"left out: {left_out_text(left_out)}" if left_out else "all were measured"
    return "no_expectation", f"nothing is expected of these points; {rest}"


def _of_nothing(points: Sequence[PointResult], left_out: Sequence[str], skips: Sequence[Skip]) -> tuple[Verdict, str]:
    """Verdict of a run without a figure. The first reason is a point that cannot run here, then one left out."""
    if unfit := [_with_reason(point) for point in points if point.status == "does_not_fit"]:
        return "missing", f"nothing was measured: {_first_of(unfit)}"
    if unable := [f"{skip.id}: {skip.reason}" for skip in skips if skip.lacks is None]:
        return "missing", f"nothing was measured: {_first_of(unable)}"
    if left_out:
        return "no_expectation", f"nothing was judged: left out: {left_out_text(left_out)}"
    return "missing", "nothing was measured"


def _first_of(reasons: Sequence[str]) -> str:
    """The first, and the number of others: ``a needs 80 GiB (and 2 more)``."""
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def _subject(row: JudgedRow) -> str:
    if not isinstance(row, NodeCheck):
        return f"{row.point_id}: {row.metric}"
    # An undecided GPU need not be the slowest.
    return f"{row.point_id}: {row.subject}" if row.name == SLOWEST else f"{row.name}: {row.subject}"


def _with_reason(point: PointResult) -> str:
    """The first sentence: a library's message goes on for lines, which the point's own result has."""
    return f"{point.id}: {(point.reason or 'failed').partition('. ')[0]}"


def contradiction(results: Results) -> str | None:
    """The first row, count or verdict of a kept file that does not follow from its points, with its place.

    The rules are common to the statistics of every version. They find damage and slips, no forger: ``pybench verify``
    assembles results again from the journal.
    """
    return next(_contradictions(results), None)


def _contradictions(results: Results) -> Iterator[str]:
    points = {point.id: point for point in results.points}
    for name in ("scaling", "checks", "comparisons", "node"):
        for number, row in enumerate(getattr(results, name)):
            yield from (f"{name}.{number}: {words}" for words in _of_row(row, points))
    yield from _of_points(results.points)
    counts = results.counts
    rows = [row for row in results.rows if not (isinstance(row, CheckResult) and row.metric == LOSS_DEVIATION)]
    # A ratio without a figure in a table counts or not: only the suite shows it.
    certain = [row.verdict for row in rows if not (isinstance(row, ScalingResult) and row.expected is None)]
    possible = [row.verdict for row in rows]
    claimed: dict[str, Verdict] = {"passed": "pass", "failed": "fail", "inconclusive": "inconclusive"}
    for name, word in claimed.items():
        number = getattr(counts, name)
        if not certain.count(word) <= number <= possible.count(word):
            yield f"counts.{name}: {number} is claimed, its rows have {possible.count(word)}"
    if counts.judged != counts.passed + counts.failed + counts.inconclusive:
        yield f"counts.judged: {counts.judged} is not the sum of passed, failed and inconclusive"
    if counts.expected != counts.judged + counts.missing + counts.without_figure + counts.left_out:
        yield f"counts.expected: {counts.expected} is not the sum of the judged rows and the others"
    is_pinned = (containment := results.provenance.containment) is None or containment.pinned
    verdict, _ = overall(results.points, results.rows, counts=counts, left_out=results.left_out, is_pinned=is_pinned)
    # Owed attempts and absent packages, which only the plan shows, make a verdict missing.
    if results.verdict != verdict and (results.verdict != "missing" or verdict in {"fail", "error"}):
        yield f"verdict: {results.verdict} is claimed, {verdict} follows from its rows and points"


def _of_points(points: Sequence[PointResult]) -> Iterator[str]:
    for number, point in enumerate(points):
        if point.num_gpus < 1:
            yield f"points.{number}.num_gpus: {point.num_gpus} is no count"
        if not 0 <= point.failed_attempts <= point.attempts:
            yield f"points.{number}.failed_attempts: {point.failed_attempts} of {point.attempts} attempts"


def _of_row(row: JudgedRow, points: Mapping[str, PointResult]) -> Iterator[str]:
    """A row has its points; a pass has measured points with the metric, and a figure within its limits."""
    # The baseline of a ratio that was not measured may be in no plan: -k left it out.
    is_bare = isinstance(row, ScalingResult) and row.speedup is None and row.verdict != "pass"
    names = row.point_ids[:1] if is_bare else row.point_ids
    if absent := [name for name in names if name not in points]:
        yield f"{absent[0]} is none of the points"
    elif row.verdict == "pass" and not (isinstance(row, NodeCheck) and row.limit is None):  # by the driver's report
        yield from (f"a pass without a measurement of {name}" for name in names if points[name].status != "ok")
        if not isinstance(row, NodeCheck) and row.metric != LOSS_DEVIATION:
            bare = [name for name in names if row.metric not in points[name].metrics]
            yield from (f"a pass without {row.metric} of {name}" for name in bare)
        (value, low, high), (minimum, maximum) = _figure(row), _limits(row)
        if value is None:
            yield "a pass without a figure"
        elif minimum is None and maximum is None:
            yield "a pass without a limit"
        elif any(
            (minimum is not None and most < minimum) or (maximum is not None and least > maximum)
            for least, most in ((value, value), (value if low is None else low, value if high is None else high))
        ):
            limits = " to ".join("" if limit is None else f"{limit:g}" for limit in (minimum, maximum))
            yield f"a pass whose figure {value:g} is outside its limits, {limits.strip()}"


def _figure(row: JudgedRow) -> tuple[float | None, float | None, float | None]:
    if isinstance(row, CheckResult):
        return (row.value.value, row.value.low, row.value.high) if row.value else (None, None, None)
    if isinstance(row, ComparisonResult):
        return row.ratio, row.low, row.high
    return (row.value, None, None) if isinstance(row, NodeCheck) else (row.speedup, row.speedup_low, row.speedup_high)


def _limits(row: JudgedRow) -> tuple[float | None, float | None]:
    """The limits that decide a pass: the worse side alone of ratios and of figures of a table."""
    if isinstance(row, CheckResult):
        return row.minimum, row.maximum
    if isinstance(row, NodeCheck):
        return (row.limit, None) if row.limit is not None and row.limit < 0 else (None, row.limit)
    if isinstance(row, ComparisonResult):
        limit = row.factor if row.widening_along is None else 1.0
        return (limit, None) if row.order == "above" else (None, limit)
    least, most = (row.expected.minimum, row.expected.maximum) if row.expected else (None, None)
    return (least, None) if row.metric in METRICS and METRICS[row.metric].higher_is_better else (None, most)
