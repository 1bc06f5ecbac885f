"""One row of a run against the same row of its references: the change, its interval, a verdict.

Logarithms are compared. With one reference the interval is Welch's over the attempts of both runs: it has no spread
between nights in it. With several, each run is one value, and the interval is that of a prediction of one more run.
Variances are shrunk towards those of the same metric's other rows (:mod:`pybench.compute.spread`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from pybench.compute.contrast import Contrast, contrast
from pybench.compute.spread import Spread, common_spread, variance_of
from pybench.compute.stats import TAIL, NoRatioError, as_fraction, location, logs
from pybench.model.change import Change, ChangeVerdict
from pybench.model.figures import Row
from pybench.model.workloads.registry import METRICS


@dataclass(frozen=True)
class Sides:
    """Attempts' medians of one row: of this run, and of each reference that has it."""

    now: tuple[float, ...]
    before: tuple[tuple[float, ...], ...]


def changes_of(rows: Mapping[Row, Sides], smallest: Mapping[str, float]) -> dict[Row, Change]:
    """The change of every row. ``smallest`` is the smallest effect by metric, a fraction."""
    spreads = {metric: _spread([sides for row, sides in rows.items() if row.metric == metric]) for metric in smallest}
    return {row: _change(row, sides, spreads[row.metric], smallest[row.metric]) for row, sides in rows.items()}


def _change(row: Row, sides: Sides, spread: Spread | None, smallest: float) -> Change:
    values = Change(
        row=row,
        unit=METRICS[row.metric].unit,
        verdict="undecided",
        before=_location([value for run in sides.before for value in run]),
        now=_location(sides.now),
    )
    try:
        found = _contrast(sides, spread)
    except NoRatioError as error:
        same = {*sides.now} == {value for run in sides.before for value in run} and len({*sides.now}) == 1
        return replace(values, verdict="unchanged") if same else replace(values, reason=str(error))
    if found is None:
        return replace(values, reason="one attempt has no spread; measure two or more")
    low, high = found.interval(TAIL)
    decided = replace(values, fraction=as_fraction(found.value), low=as_fraction(low), high=as_fraction(high))
    verdict = verdict_of(low, high, smallest, higher_is_better=METRICS[row.metric].higher_is_better)
    return replace(decided, verdict=verdict)


def verdict_of(low: float, high: float, smallest: float, *, higher_is_better: bool) -> ChangeVerdict:
    """Of an interval in logarithms: beyond the smallest effect, within it, or across its limit."""
    worse, better = (low, high) if higher_is_better else (-high, -low)
    limit = math.log1p(smallest)
    if better < -limit:
        return "regressed"
    if worse > limit:
        return "improved"
    return "unchanged" if worse > -limit and better < limit else "undecided"


def _contrast(sides: Sides, spread: Spread | None) -> Contrast | None:
    now, before = logs([[value] for value in sides.now]), [logs([[v] for v in run]) for run in sides.before]
    if len(before) == 1:
        return contrast([now], before, spread)
    runs = [fmean(run) for run in before]
    used = runs if spread is None else spread.pulled_in(runs)
    variance, freedom = variance_of(used), float(len(used) - 1)
    if spread is not None:
        variance, freedom = spread.moderated(variance, freedom)
    return Contrast(
        value=fmean(now) - fmean(used),
        variance=variance * (1 + 1 / len(used)),
        freedom=freedom,
        num_attempts=len(used),
    )


def _spread(rows: Sequence[Sides]) -> Spread | None:
    """What a metric's rows have in common: between attempts, or between references where there are several."""
    found: list[list[float]] = []
    for sides in rows:
        try:
            runs = [logs([[value] for value in run]) for run in sides.before]
            found.extend([logs([[value] for value in sides.now]), *runs] if len(runs) == 1 else [[*map(fmean, runs)]])
        except NoRatioError:
            continue
    return common_spread(found)


def _location(medians: Sequence[float]) -> float:
    return location([[value] for value in medians])
