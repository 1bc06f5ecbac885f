"""A row's evidence in words, and what decides a run."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.core.counts import counted_with, left_out_text
from pybench.core.evidence import ONE_ATTEMPT, Evidence, look_text, more_attempts_text, verdict_of
from pybench.core.node.spread import SLOWEST
from pybench.core.numbers import ONE, UNKNOWN_SPREAD, Scale, is_unknown, plain, scale_of
from pybench.model.plural import plural
from pybench.model.results import CheckResult, Estimate, JudgedRow, NodeCheck, PointResult
from pybench.model.suite import Order, Skip
from pybench.model.verdict import Counts, Decision, Expected, Verdict

# N GPUs can beat N times one GPU by a little (more cache, less paging); well beyond that, the baseline was held back.
SUPERLINEAR_MARGIN = 0.10

Judgement = tuple[Verdict, str, tuple[str, ...], Decision | None]
"""Verdict, reason in words, flags, and how it was decided."""


def judge_ratio(evidence: Evidence, expected: Expected | str, linear: float, *, more: bool) -> Judgement:
    """Judge a ratio. ``expected`` is a sentence where nothing is: why.

    ``linear`` is the GPU-count ratio, ``more`` whether more of the metric is better.

    Gates on the worse side alone: beyond the better side is a pass that calls for a new table, unless a throughput
    outgrows its GPUs, which no healthy baseline allows.
    """
    ratio, low, high = evidence.interval
    if more and low is not None and low > linear * (1 + SUPERLINEAR_MARGIN):
        reason = f"{ratio:.2f}x on {linear:g}x the GPUs: the baseline was held back (memory, paging, another process)"
        return "inconclusive", reason, ("suspect_baseline",), None
    if isinstance(expected, str):
        return "no_expectation", expected, (), None
    gate = expected.minimum if more else expected.maximum
    if gate is None:
        return "no_expectation", "the table's row has no limit on this side", (), None
    decision = evidence.decide(gate if more else None, None if more else gate)
    if low is None or high is None:
        return "inconclusive", ONE_ATTEMPT, (), decision
    beyond = expected.maximum if more else expected.minimum
    better = beyond is not None and (low > beyond if more else high < beyond)
    found = f"at {'least' if more else 'most'} {plain(gate)} expected, found {_interval(ratio, low, high)}"
    verdict, reason = _worded(evidence, decision, found, [gate])
    return verdict, reason, ("better_than_expected",) if better else (), decision


def judge_value(
    evidence: Evidence, unit: str, minimum: float | None, maximum: float | None
) -> tuple[Verdict, str, Decision]:
    """Judge a metric itself against absolute limits, of which at least one is given."""
    decision = evidence.decide(minimum, maximum)
    value, low, high = evidence.interval
    if low is None or high is None:
        return "inconclusive", ONE_ATTEMPT, decision
    scale = scale_of(Estimate(value=value, low=low, high=high, unit=unit))
    limits = [(word, limit) for word, limit in (("at least", minimum), ("at most", maximum)) if limit is not None]
    allowed = " and ".join(f"{word} {plain(limit / scale.factor)}" for word, limit in limits)
    sensors = " with what power sensors leave open" if evidence.contrast and evidence.contrast.systematic_sd else ""
    found = f"found {_interval(value, low, high, scale)}{sensors}, allowed {allowed}"
    return *_worded(evidence, decision, found, [limit for _, limit in limits], scale), decision


def judge_comparison(
    evidence: Evidence, order: Order, factor: float = 1.0, along: str | None = None
) -> tuple[Verdict, str, Decision]:
    """Judge a metric over another point's: it must lie on one side of ``factor``, or touch it.

    With ``along``, the evidence is of how much that ratio changed from the axis's least value to its greatest.
    """
    limit = factor if along is None else 1.0
    decision = evidence.decide(limit if order == "above" else None, limit if order == "below" else None)
    ratio, low, high = evidence.interval
    if low is None or high is None:
        return "inconclusive", ONE_ATTEMPT, decision
    interval = _interval(ratio, low, high)
    if along is not None:
        found = (
            f"the ratio must {'fall' if order == 'below' else 'rise'} along {along}, found {interval} times the first"
        )
    else:
        wanted = "as much" if factor == 1 else f"{factor:g} times as much"
        found = f"at {'most' if order == 'below' else 'least'} {wanted} expected, found {interval} times the other"
    return *_worded(evidence, decision, found, [limit]), decision


def _interval(value: float, low: float, high: float, scale: Scale = ONE) -> str:
    """With all digits that may tell an end from a limit; ends that show only that nothing is known are left out."""
    found, least, most = (plain(number / scale.factor) for number in (value, low, high))
    ends = UNKNOWN_SPREAD if is_unknown(value, low, high) else f"[{least}, {most}]"
    return f"{found} {ends} {scale.unit}".rstrip()


def _worded(
    evidence: Evidence, decision: Decision, found: str, limits: Sequence[float], scale: Scale = ONE
) -> tuple[Verdict, str]:
    verdict = verdict_of(decision)
    if verdict != "inconclusive":
        return verdict, found
    notes = "".join(f"; {note}" for note in evidence.notes)
    return verdict, f"{found}; {look_text(evidence, limits, scale)}{more_attempts_text(decision)}{notes}"


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
) -> tuple[Verdict, str]:
    """Verdict of a run, and what decided it.

    ``counts`` are of the ``rows``, ``left_out`` names what the plan leaves out; ``skips`` that lack something were
    required. ``num_owed`` attempts are to be made yet, those of points that were not measured among them. ``guards``
    are checks that no suite contains: one that fails decides, one that passes shows nothing by itself.
    """
    named: list[tuple[Verdict, str]] = [
        *((row.verdict, f"{_subject(row)}: {row.reason}") for row in (*rows, *guards)),
        *(("error", f"{p.id}: {_first_sentence(p.reason)}") for p in points if p.status == "failed"),
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
    if counts.passed:
        return "pass", counted_with(counts, machine, left_out)
    if counts.expected:
        return "no_expectation", f"nothing was judged: {counted_with(counts, machine, left_out)}"
    rest = f"left out: {left_out_text(left_out)}" if left_out else "all were measured"
    return "no_expectation", f"nothing is expected of these points; {rest}"


def _of_nothing(points: Sequence[PointResult], left_out: Sequence[str], skips: Sequence[Skip]) -> tuple[Verdict, str]:
    """Of a run without a figure: what cannot be measured here stands before what was left out."""
    if unfit := [f"{point.id}: {_first_sentence(point.reason)}" for point in points if point.status == "does_not_fit"]:
        return "missing", f"nothing was measured: {_first_of(unfit)}"
    if unable := [f"{skip.id}: {skip.reason}" for skip in skips if skip.lacks is None]:
        return "missing", f"nothing was measured: {_first_of(unable)}"
    if left_out:
        return "no_expectation", f"nothing was judged: left out: {left_out_text(left_out)}"
    return "missing", "nothing was measured"


def _first_of(reasons: Sequence[str]) -> str:
    """And how many there are besides: ``a needs 80 GiB (and 2 more)``."""
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def _subject(row: JudgedRow) -> str:
    if not isinstance(row, NodeCheck):
        return f"{row.point_id}: {row.metric}"
    # An undecided GPU need not be the slowest.
    return f"{row.point_id}: {row.subject}" if row.name == SLOWEST else f"{row.name}: {row.subject}"


def _first_sentence(reason: str | None) -> str:
    """A library's message goes on for lines, which the point's own result has."""
    return (reason or "failed").partition(". ")[0]
