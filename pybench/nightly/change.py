"""One row of a run against the same row of its references: the change, its interval, a verdict.

Logarithms are compared. With one reference the interval is Welch's over the attempts of both runs, and the spread
between runs of this machine is added where other runs show it. Without it a change for the worse is *differs*: attempts
of one run do not show how far two equal runs are apart. With several references each run is one value. The interval is
that of one more run; a run of fewer attempts than the references has a wider interval. Variances are shrunk
towards those of the same metric's other rows (:mod:`pybench.core.statistics.spread`). Changes are
corrected over all rows (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from pybench.core.statistics.contrast import Contrast, contrast
from pybench.core.statistics.false_discovery import sure
from pybench.core.statistics.interval import TAIL, NoRatioError, as_fraction, location, logs
from pybench.core.statistics.spread import Spread, Variance, common_spread, pooled_variance, variance_of
from pybench.core.statistics.units import MIN_UNITS, moderated, spread_of
from pybench.model.figures import Change, ChangeVerdict, FigureKey
from pybench.model.workloads.registry import METRICS

FAMILY_ERROR = 0.05
"""Probability that any row of two equal runs is called worse; of one alone it is that of its interval's side."""
_LEAST_ATTEMPTS = 2
"""One attempt does not show how far attempts scatter."""


@dataclass(frozen=True)
class Sides:
    """Attempts' medians of one row: of this run, and of each reference that has it."""

    now: tuple[float, ...]
    before: tuple[tuple[float, ...], ...]


def between_runs(runs: Sequence[Mapping[FigureKey, tuple[float, ...]]]) -> dict[FigureKey, Variance]:
    """Variance of each row between runs of one machine, from their attempts; of rows that three or more runs have.

    Rows of one metric share what they show of it (:func:`~pybench.core.statistics.units.moderated`).
    """
    values: dict[FigureKey, list[float]] = {}
    for run in runs:
        for row, medians in run.items():
            if min(medians) > 0:
                values.setdefault(row, []).append(fmean(map(math.log, medians)))
    by_metric: dict[str, dict[FigureKey, Variance]] = {}
    for row, means in values.items():
        if len(means) >= MIN_UNITS:
            by_metric.setdefault(row.metric, {})[row] = spread_of(means)
    return {row: variance for spreads in by_metric.values() for row, variance in moderated(spreads).items()}


def changes_of(
    rows: Mapping[FigureKey, Sides], smallest: Mapping[str, float], between: Mapping[FigureKey, Variance] | None = None
) -> dict[FigureKey, Change]:
    """The change of every row.

    ``smallest`` is the smallest effect by metric, a fraction; ``between`` the variance between runs, which counts for
    rows with one reference.
    """
    between = between or {}
    spreads = {metric: _spread([sides for row, sides in rows.items() if row.metric == metric]) for metric in smallest}
    judged = {
        row: _change(row, sides, spreads[row.metric], smallest[row.metric], between.get(row))
        for row, sides in rows.items()
    }
    # Probability of each change by chance: of a worse one where the truth is the smallest effect; of a better one.
    worse: dict[FigureKey, float] = {}
    better: dict[FigureKey, float] = {}
    for row, (_, measured) in judged.items():
        if measured:
            limit = math.log1p(smallest[row.metric])
            less, more = measured.p_below(-limit) / FAMILY_ERROR, measured.p_above(limit) / FAMILY_ERROR
            worse[row], better[row] = (less, more) if _higher(row) else (more, less)
    sure_of = {"regressed": sure(worse), "improved": sure(better)}
    decided = {}
    for row, (change, _) in judged.items():
        decided[row] = change
        if row not in sure_of.get(change.verdict, judged):
            reason = f"{change.verdict} by itself, but not yet sure among {len(worse)} rows"
            decided[row] = replace(change, verdict="undecided", reason=reason)
        elif change.verdict == "regressed" and len(rows[row].before) == 1 and row not in between:
            decided[row] = replace(change, verdict="differs")
    return decided


def _higher(row: FigureKey) -> bool:
    return METRICS[row.metric].higher_is_better


def _change(
    row: FigureKey, sides: Sides, spread: Spread | None, smallest: float, between: Variance | None
) -> tuple[Change, Contrast | None]:
    values = Change(
        row=row,
        unit=METRICS[row.metric].unit,
        verdict="undecided",
        before=_location([value for run in sides.before for value in run]),
        now=_location(sides.now),
    )
    try:
        difference = _contrast(sides, spread, between)
        as_measured = _contrast(sides, spread and spread.of_a_change, between)
    except NoRatioError as error:
        same = {*sides.now} == {value for run in sides.before for value in run} and len({*sides.now}) == 1
        return replace(values, verdict="unchanged") if same else replace(values, reason=str(error)), None
    if difference is None or as_measured is None:
        return replace(values, reason="one attempt has no spread; measure two or more"), None
    low, high = difference.interval(TAIL)
    decided = replace(values, fraction=as_fraction(difference.value), low=as_fraction(low), high=as_fraction(high))
    verdict = verdict_of(low, high, smallest, higher_is_better=_higher(row))
    if verdict in {"regressed", "improved"}:
        # Values that are pulled in may hide that most of a few attempts were bad by chance; alike ones show too little.
        held = verdict_of(*as_measured.interval(TAIL), smallest, higher_is_better=_higher(row))
        verdict, difference = (verdict, as_measured) if held == verdict else ("undecided", difference)
    reason = "; ".join(spread.notes) if spread and verdict == "undecided" else ""
    return replace(decided, verdict=verdict, reason=reason), difference


def verdict_of(low: float, high: float, smallest: float, *, higher_is_better: bool) -> ChangeVerdict:
    """Of an interval in logarithms: beyond the smallest effect, within it, or across its limit."""
    worse, better = (low, high) if higher_is_better else (-high, -low)
    limit = math.log1p(smallest)
    if better < -limit:
        return "regressed"
    if worse > limit:
        return "improved"
    return "unchanged" if worse > -limit and better < limit else "undecided"


def _contrast(sides: Sides, spread: Spread | None, between: Variance | None) -> Contrast | None:
    now, before = logs([[value] for value in sides.now]), [logs([[v] for v in run]) for run in sides.before]
    if len(before) == 1:
        difference = contrast([now], before, spread)
        if difference is None or between is None:
            return difference
        # The spread between two runs; the degrees of freedom are Satterthwaite's.
        variance, freedom = 2 * between[0], between[1]
        total = difference.variance + variance
        square = variance**2 / freedom + (difference.variance**2 / difference.freedom if difference.variance else 0.0)
        return replace(difference, variance=total, freedom=total**2 / square)
    return _prediction(now, before, spread) if len(now) >= _LEAST_ATTEMPTS else None


def _prediction(now: Sequence[float], before: Sequence[Sequence[float]], spread: Spread | None) -> Contrast:
    """Against several references: each run is one value, and this run is one more."""
    runs = [fmean(run) for run in before]
    used = runs if spread is None else spread.pulled_in(runs)
    variance, freedom = variance_of(used), float(len(used) - 1)
    if spread is not None:
        variance, freedom = spread.moderated(variance, freedom)
    variance *= 1 + 1 / len(used)
    if (num_fewer := 1 / len(now) - fmean(1 / len(run) for run in before)) > 0:
        of_attempts, num_free = pooled_variance((now, *before))
        added = num_fewer * of_attempts
        # Welch-Satterthwaite.
        square = variance**2 / freedom + added**2 / num_free
        variance += added
        freedom = variance**2 / square if square else freedom
    return Contrast(value=fmean(now) - fmean(used), variance=variance, freedom=freedom, num_attempts=len(used))


def _spread(rows: Sequence[Sides]) -> Spread | None:
    """Common spread of a metric's rows: between attempts, or between references where there are several."""
    groups: list[list[float]] = []
    for sides in rows:
        try:
            runs = [logs([[value] for value in run]) for run in sides.before]
            groups.extend([logs([[value] for value in sides.now]), *runs] if len(runs) == 1 else [[*map(fmean, runs)]])
        except NoRatioError:
            continue
    return common_spread(groups)


def _location(medians: Sequence[float]) -> float:
    return location([[value] for value in medians])
