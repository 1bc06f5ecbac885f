"""How much of what a suite expects was judged."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import groupby

from pybench.core.scaling_row import expectations_of
from pybench.model.plural import plural
from pybench.model.results import CheckResult, ExpectationRow, NodeCheck, ScalingResult
from pybench.model.suite import Plan, Suite
from pybench.model.verdict import Counts

_MOST_NAMED = 3


def count(
    suite: Suite, plan: Plan, rows: Sequence[ExpectationRow], node: Sequence[NodeCheck], measured: Container[str] = ()
) -> Counts:
    """Count rows by what became of them. A ratio without a table is shown, and no expectation.

    Of a point that is ``measured`` (by its id) no row of a table would judge a metric that it lacks, such as joules
    without a driver: that is not measured.
    """
    expected = [row for row in rows if not (isinstance(row, ScalingResult) and _is_only_shown(suite, row))]
    in_plan = {point.id for point in plan.points} | {skip.id for skip in plan.skips}
    unjudged = [row for row in expected if row.verdict == "no_expectation"]
    left_out = sum(not in_plan.issuperset(row.point_ids) for row in unjudged)
    unmeasured = sum(_lacks_metric(row) and all(name in measured for name in row.point_ids) for row in unjudged)
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


def counted(counts: Counts, machine: str) -> str:
    """``6 of 8 expectations judged; 2 have no row for h100``."""
    lacks = f"{'has' if counts.without_figure == 1 else 'have'} no row for {machine}"
    rest = ((counts.without_figure, lacks), (counts.left_out, "left out"), (counts.missing, "not measured"))
    parts = [f"{number} {words}" for number, words in rest if number]
    return "; ".join((f"{counts.judged} of {plural(counts.expected, 'expectation')} judged", *parts))


def counted_with(counts: Counts, machine: str, left_out: Sequence[str]) -> str:
    """The same with what the plan leaves out: ``6 of 8 expectations judged; 2 left out: 8 GPUs (4 here)``."""
    if not left_out:
        return counted(counts, machine)
    before = ": " if counts.left_out and not counts.missing else "; left out: "
    return f"{counted(counts, machine)}{before}{left_out_text(left_out)}"


def left_out_text(left_out: Sequence[str]) -> str:
    """The first three, a shared reason once: ``4 GPUs (2 here); torch, vllm (not installed) (and 2 more)``."""
    groups = [(reason, list(found)) for reason, found in groupby(left_out[:_MOST_NAMED], key=_reason)]
    texts = (
        (", " if reason else "; ").join(t.removesuffix(reason) for t in found) + reason for reason, found in groups
    )
    more = len(left_out) - _MOST_NAMED
    return "; ".join(texts) + (f" (and {more} more)" if more > 0 else "")


def _reason(text: str) -> str:
    """In parentheses at the end, if there is any."""
    _, bracket, rest = text.partition(" (")
    return bracket + rest


def _lacks_metric(row: ExpectationRow) -> bool:
    """Not a ratio of values of zero, which were measured."""
    if isinstance(row, CheckResult):
        return row.value is None
    ratio = row.speedup if isinstance(row, ScalingResult) else row.ratio
    return ratio is None and "no_ratio" not in row.flags


def _is_only_shown(suite: Suite, row: ScalingResult) -> bool:
    tables = {expectation.table for expectation in expectations_of(suite, row)}
    return tables == {None}
