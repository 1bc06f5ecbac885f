"""An interval against its limits."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.expected import ExpectedRow
from pybench.model.results import (
    CheckResult,
    Estimate,
    Expected,
    NodeCheck,
    OrderResult,
    PointResult,
    ScalingResult,
    Verdict,
)
from pybench.model.suite import Order

# N GPUs can beat N times one GPU by a little (more cache, less paging); well beyond that, the baseline was held back.
SUPERLINEAR_MARGIN = 0.10

Judgement = tuple[Verdict, str, tuple[str, ...]]
"""Verdict, reason in words, flags."""


def limits(row: ExpectedRow) -> tuple[float | None, float | None]:
    """Least and greatest expected ratio of a row: its range, or its value give or take the tolerance."""
    if row.value is None:
        return row.minimum, row.maximum
    return row.value * (1 - row.tolerance), row.value * (1 + row.tolerance)


def judge_ratio(
    ratio: float, low: float | None, high: float | None, expected: Expected | None, linear: float, *, more: bool
) -> Judgement:
    """Judge a ratio's interval. ``linear`` is the GPU-count ratio, ``more`` whether more of the metric is better.

    Gates on the worse side alone: beyond the better side is a pass that asks for a new table, unless a throughput
    outgrows its GPUs, which no healthy baseline allows.
    """
    if more and low is not None and low > linear * (1 + SUPERLINEAR_MARGIN):
        reason = f"{ratio:.2f}x on {linear:g}x the GPUs: the baseline was held back (memory, paging, another process)"
        return "inconclusive", reason, ("suspect_baseline",)
    if expected is None:
        return (
            "no_expectation",
            "no figure to judge it against: no table, or none of its rows is for this machine and model",
            (),
        )
    if low is None or high is None:
        return "inconclusive", "one attempt shows no spread between runs; two are needed", ()
    gate = expected.minimum if more else expected.maximum
    if gate is None:
        return "no_expectation", "the table's row has no limit on this side", ()
    verdict = against(gate, low, high, at_least=more)
    beyond = expected.maximum if more else expected.minimum
    better = beyond is not None and (low > beyond if more else high < beyond)
    reason = f"{'at least' if more else 'at most'} {gate:.3g} expected, found {ratio:.3g} [{low:.3g}, {high:.3g}]"
    return verdict, reason, ("better_than_expected",) if better else ()


def judge_value(value: Estimate | None, minimum: float | None, maximum: float | None) -> tuple[Verdict, str]:
    """Judge a metric's own interval against absolute limits."""
    if value is None:
        return "missing", "the metric was not measured"
    if value.low is None or value.high is None:
        return "inconclusive", "one attempt shows no spread between runs; two are needed"
    verdicts = [
        *([against(minimum, value.low, value.high, at_least=True)] if minimum is not None else []),
        *([against(maximum, value.low, value.high, at_least=False)] if maximum is not None else []),
    ]
    worst = next((v for v in ("fail", "inconclusive") if v in verdicts), "pass")
    found = f"{value.value:.4g} [{value.low:.4g}, {value.high:.4g}] {value.unit}"
    sides = [f"{word} {limit:g}" for word, limit in (("least", minimum), ("most", maximum)) if limit is not None]
    return _VERDICTS[worst], f"found {found}, allowed {' and '.join(sides)}"


def judge_order(
    ratio: float, low: float | None, high: float | None, order: Order, along: str | None = None
) -> tuple[Verdict, str]:
    """Judge the interval of a metric over another point's: it must lie on one side of 1, or touch it.

    With ``along``, ``ratio`` is by how much that ratio changed from the axis's least value to its greatest.
    """
    if low is None or high is None:
        return "inconclusive", "one attempt shows no spread between runs; two are needed"
    found = f"{ratio:.3g} [{low:.3g}, {high:.3g}]"
    if along is None:
        reason = f"at {'most' if order == 'below' else 'least'} as much expected, found {found} times the other"
    else:
        reason = f"the ratio must {'fall' if order == 'below' else 'rise'} along {along}, found {found} times the first"
    return against(1.0, low, high, at_least=order == "above"), reason


_VERDICTS: dict[str, Verdict] = {"pass": "pass", "fail": "fail", "inconclusive": "inconclusive"}


def against(limit: float, low: float, high: float, *, at_least: bool) -> Verdict:
    """An interval against one limit: pass on its good side, fail on the other, inconclusive across."""
    if (low if at_least else -high) >= (limit if at_least else -limit):
        return "pass"
    if (high if at_least else -low) < (limit if at_least else -limit):
        return "fail"
    return "inconclusive"


# The worst verdict decides. A fail stands before an error: what did measure was too slow, whatever else broke.
_ORDER: tuple[Verdict, ...] = ("fail", "error", "missing", "inconclusive")


def overall(
    points: Sequence[PointResult],
    scaling: Sequence[ScalingResult],
    checks: Sequence[CheckResult],
    orders: Sequence[OrderResult] = (),
    node: Sequence[NodeCheck] = (),
    guards: Sequence[CheckResult] = (),
    *,
    declared: bool,
) -> tuple[Verdict, str]:
    """Verdict of a run, and what decided it. ``declared`` tells whether the suite expects anything at all.

    ``guards`` are checks that no suite asks for: one that fails decides, one that passes shows nothing by itself.
    """
    expected: list[tuple[Verdict, str]] = [
        *((row.verdict, f"{row.point_id}: {row.metric}: {row.reason}") for row in scaling),
        *((check.verdict, f"{check.point_id}: {check.metric}: {check.reason}") for check in checks),
        *((row.verdict, f"{row.point_id}: {row.metric}: {row.reason}") for row in orders),
        *((check.verdict, f"{check.name}: {check.subject}: {check.reason}") for check in node),
    ]
    named = [
        *expected,
        *((guard.verdict, f"{guard.point_id}: {guard.metric}: {guard.reason}") for guard in guards),
        *(("error", f"{p.id}: {p.reason}") for p in points if p.status == "failed"),
        *(("missing", f"{p.id}: {p.reason}") for p in points if p.status == "missing"),
    ]
    for verdict in _ORDER:
        culprits = [reason for found, reason in named if found == verdict]
        if culprits:
            more = f" (and {len(culprits) - 1} more)" if len(culprits) > 1 else ""
            return verdict, culprits[0] + more
    if not any(point.status == "ok" for point in points):
        return "missing", "nothing was measured"
    if any(found == "pass" for found, _ in expected):
        return "pass", "every expectation passes"
    if declared:
        return "no_expectation", "nothing could be judged: no table has a row for this machine"
    return "no_expectation", "the suite expects nothing; everything was measured"
