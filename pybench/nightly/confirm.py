"""What a rerun shows of the rows that a night flagged.

Beside a rerun of the reference's software, interleaved with it, the two are compared: what the night and the host did
is in both. A rerun alone is held against the nights: it clears what came from bad attempts, and confirms what the night
or the host did, too. Nothing of a rerun enters a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from pybench.core.statistics.contrast import contrast
from pybench.core.statistics.interval import as_fraction
from pybench.model.figures import RunFigures
from pybench.model.workloads.registry import METRICS
from pybench.nightly.gate import overall
from pybench.nightly.night_look import MOST_NIGHTS_AS_FAR
from pybench.nightly.series import Series, attempts_of
from pybench.nightly.values import BY_IMPORTANCE, Confirmation, GateResult, GateRow

_TAIL = 0.05


@dataclass(frozen=True)
class Rerun:
    """Figures of a rerun, and of the reference's software beside it where that was rerun."""

    run: RunFigures
    reference: RunFigures | None = None


def flagged(result: GateResult) -> tuple[GateRow, ...]:
    """Rows that a rerun can confirm or clear."""
    return tuple(row for row in result.rows if row.state == "regressed" and row.confirmation is None)


def reference_of(series: Series, rows: Sequence[GateRow]) -> RunFigures | None:
    """The newest run before any of the rows changed; ``None`` where there is none."""
    since = min((row.level_change.since for row in rows if row.level_change), default=series.last.created_utc)
    return next((run for run in reversed(series.runs[:-1]) if run.created_utc < since), None)


def confirm(result: GateResult, rerun: Rerun) -> GateResult:
    """Judge the flagged rows anew. A row that the rerun did not measure stays as it is, not confirmed."""
    chosen = {row.row for row in flagged(result)}
    rows = [
        _confirmed(row, rerun, result.effects.of(row.row.metric)) if row.row in chosen else row for row in result.rows
    ]
    ordered = tuple(sorted(rows, key=lambda row: BY_IMPORTANCE.index(row.state)))
    return replace(result, rows=ordered, state=overall(ordered, result.host, result.unmeasured))


def unconfirmed(result: GateResult, reason: str) -> GateResult:
    """The result where no rerun was possible: flagged rows stay regressed, and the reason is there."""
    chosen = {row.row for row in flagged(result)}
    rows = tuple(replace(row, confirmation="not confirmed") if row.row in chosen else row for row in result.rows)
    return replace(result, rows=rows, note=f"not confirmed: {reason}" if chosen else result.note)


def _confirmed(row: GateRow, rerun: Rerun, smallest: float) -> GateRow:
    now = _logs(rerun.run, row)
    if not now or row.before is None:
        return replace(row, confirmation="not confirmed", reason="the rerun did not measure it")
    before = _logs(rerun.reference, row) if rerun.reference else ()
    if before:
        found, deviation = _beside(now, before, smallest)
        beside = "beside the reference's software a rerun shows"
    else:
        deviation = median(now) - METRICS[row.row.metric].sign * math.log(row.before)
        found = _alone(deviation, abs(math.log1p(row.fraction or 0.0)), smallest)
        beside = "a rerun shows"
    reason = f"{beside} {100 * as_fraction(METRICS[row.row.metric].sign * deviation):+.1f} %"
    state = row.state if found == "confirmed" else "pass" if found == "cleared" else "undecided"
    num, of_nights = row.nights_as_far
    if found == "confirmed" and not before and num >= max(MOST_NIGHTS_AS_FAR * of_nights, 1):
        state = "undecided"
        reason += f"; {row.as_far_text}: the next night decides"
    return replace(row, state=state, confirmation=found, reason="; ".join(filter(None, (row.reason, reason))))


def _alone(deviation: float, effect: float, smallest: float) -> Confirmation:
    """Confirmed where at least half of the change is there again."""
    half = math.log1p(smallest) / 2
    if deviation > -half:
        return "cleared"
    return "confirmed" if deviation <= -max(effect / 2, half) else "not confirmed"


def _beside(now: Sequence[float], before: Sequence[float], smallest: float) -> tuple[Confirmation, float]:
    half = math.log1p(smallest) / 2
    found = contrast([now], [before])
    deviation = found.value if found else median(now) - median(before)
    if deviation > -half:
        return "cleared", deviation
    is_sure = found is not None and found.p_below(0.0) <= _TAIL
    return "confirmed" if is_sure else "not confirmed", deviation


def _logs(run: RunFigures, row: GateRow) -> tuple[float, ...]:
    """Turned so that higher is better."""
    point = next((one for one in run.points if one.id == row.row.point_id), None)
    return attempts_of(point, row.row.metric) if point else ()
