"""The decision of a night: every row is judged by the nights before it, all rows together.

A look at the newest nights flags a row when it stands among all rows and is large enough. A change of level flags it,
too (:mod:`night_look`). The shift of all points is taken out first and is one finding (:mod:`host_shift`). A flagged
speed whose change vanishes in clock cycles is *clock*. Deviations and smallest effects are logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pybench.core.statistics.interval import as_fraction
from pybench.model.figures import NOT_ALONE, FigureKey, SmallestEffects
from pybench.model.workloads.registry import METRICS
from pybench.nightly.accepted import about, accepted_on, level_start, of_all_points
from pybench.nightly.baseline import MIN_NIGHTS, Baseline, Nights, admitted, baselines
from pybench.nightly.comparison import absence_of
from pybench.nightly.history import Series
from pybench.nightly.host_shift import (
    NOUNS,
    HostNights,
    Shift,
    clock_change,
    clock_words,
    host_evidence,
    in_cycles,
    noun_of,
)
from pybench.nightly.night_look import (
    SECOND_SPEED,
    Look,
    detectable,
    drift_of,
    flagged,
    is_second_speed,
    look_at,
    newest_change,
    nights_as_far,
)
from pybench.nightly.values import BY_IMPORTANCE, Accepted, GateResult, GateRow, HostShift, LevelChange, overall

MAX_NIGHTS = 120
"""Nights before the one that is judged that are looked at."""


def judge_night(
    series: Series, accepted: Sequence[Accepted] = (), effects: SmallestEffects | None = None
) -> GateResult:
    """Judge the last run of a series by those before it. Reruns may confirm or clear what it flags."""
    newest = replace(series, runs=series.runs[-MAX_NIGHTS - 1 :])
    night = _Night.of(newest, accepted, effects or SmallestEffects())
    rows = sorted(
        (*map(night.with_builds, night.judged()), *night.absent()),
        key=lambda row: (BY_IMPORTANCE.index(row.state), -abs(row.fraction or 0.0)),
    )
    host = tuple(night.host_shifts())
    unmeasured = tuple(night.unmeasured({row.row.point_id for row in rows}))
    return GateResult(
        run_id=series.last.run_id,
        suite=series.last.suite,
        state="incomparable"
        if series.apart and len(series.runs) == 1 and not unmeasured
        else overall(rows, host, unmeasured),
        rows=tuple(rows),
        num_nights=len(series.runs) - 1,
        host=host,
        differences=tuple(f"{text} ({count})" for text, count in series.apart.items()),
        unmeasured=unmeasured,
        broken=series.broken,
        num_later=series.num_later,
        is_unfinished=any(point.is_missing and not point.num_failed for point in series.last.points),
        effects=night.effects,
        note=None
        if rows or unmeasured
        else next((f"{point.id}: {point.absence}" for point in series.last.points if point.absence), None),
        acceptance=of_all_points(series.last, host) if host else None,
    )


@dataclass(frozen=True)
class _Night:
    """A night and the nights before it; ``learnt`` has the rows whose baseline is known."""

    series: Series
    effects: SmallestEffects
    accepted: Sequence[Accepted]
    expected: Mapping[FigureKey, Nights]
    rows: Mapping[FigureKey, Nights]
    learnt: Mapping[FigureKey, Baseline]
    shifts: Mapping[str, Shift]

    @classmethod
    def of(cls, series: Series, accepted: Sequence[Accepted], effects: SmallestEffects) -> _Night:
        # A date in the future would leave no row a level.
        accepted = [entry for entry in about(series, accepted) if entry.holds_on(series.last.created_utc)]
        expected = {
            row: Nights(
                tuple(METRICS[row.metric].sign * math.log(v) if v and v > 0 else None for v in series.values(row)),
                level_start(series, row, accepted),
            )
            for row in series.rows
        }
        rows = {row: nights for row, nights in expected.items() if nights.values[-1] is not None}
        learnt, least = baselines(rows, effects), math.log1p(effects.default)
        off = frozenset[int]().union(*(HostNights.of(rows, learnt, noun, least).apart for noun in NOUNS))
        # A host that changed within its first nights may leave too few nights to judge by.
        if off and len(series.runs) - 1 - len(off) >= MIN_NIGHTS:
            rows = {row: nights.set_apart(off) for row, nights in rows.items()}
            learnt = baselines(rows, effects)
        shifts = {noun: shift for noun in NOUNS if (shift := HostNights.of(rows, learnt, noun, least).tonight)}
        return cls(series, effects, accepted, expected, rows, learnt, shifts)

    def judged(self) -> Iterator[GateRow]:
        """Rows that were measured tonight."""
        smallest, learnt = {row.metric: self.smallest(row.metric) for row in self.learnt}, self.learnt.items()
        sides = [
            {row: look_at(self.rows[row], base, self.shift(row), worse=worse) for row, base in learnt}
            for worse in (True, False)
        ]
        drawn = {row for looks in sides for row in flagged(looks, smallest) if self._is_drawn(row, looks[row])}
        worse, better = (
            flagged({row: look for row, look in looks.items() if row not in drawn}, smallest) for looks in sides
        )
        beside = {point.id for point in self.series.last.points if not point.is_alone}
        for row in self.rows:
            if row not in self.learnt:
                yield self._learning(row)
            elif row.point_id in beside:
                yield replace(self._figures(row, sides[0][row]), state="undecided", reason=NOT_ALONE)
            elif row in better and row not in worse:
                dated = self._dated(row, sides[1][row])
                yield replace(self._figures(row, sides[1][row]), state="improved", level_change=dated)
            else:
                look = sides[0][row] if row in worse else min((s[row] for s in sides), key=lambda look: look.p)
                decided = self._decided(row, look, row in worse)
                yield replace(decided, reason=SECOND_SPEED) if row in drawn and decided.state == "pass" else decided

    def absent(self) -> Iterator[GateRow]:
        """Rows of earlier nights that were not measured tonight, unless their own point is accepted since.

        What accepts all points of a suite accepts that they are slower or faster, and not that one is gone.
        """
        named = [entry for entry in self.accepted if entry.point is not None]
        for row, nights in self.expected.items():
            start = level_start(self.series, row, named)
            if nights.values[-1] is None and any(value is not None for value in nights.values[start:]):
                reason = absence_of(row, self.series.last)
                yield GateRow(row=row, unit=METRICS[row.metric].unit, state="not measured", reason=reason)

    def unmeasured(self, shown: Collection[str]) -> Iterator[tuple[str, str]]:
        """Points that were to be measured and are not ``shown`` in a row, each with the reason: no night has a row."""
        gone = {entry.point for entry in self.accepted if entry.metric is None}
        for point in self.series.last.points:
            if point.is_missing and point.id not in shown and point.id not in gone:
                yield point.id, point.absence or "not measured"

    def with_builds(self, row: GateRow) -> GateRow:
        """A changed row with the build of the workers before the change and tonight, where they differ."""
        builds = self.series.builds(row.level_change.since) if row.level_change else ""
        return replace(row, reason="; ".join(filter(None, (row.reason, builds))))

    def _is_drawn(self, row: FigureKey, look: Look) -> bool:
        """Whether the nights that were looked at show a second speed of single attempts."""
        attempts = self.series.attempts(row)
        base = self.learnt[row].before(look.nights[0]) or self.learnt[row]
        tonight = [value - self.shift(row) for value in attempts[-1]]
        seen = [*(attempts[night] for night in look.nights[:-1]), tonight]
        return is_second_speed(seen, [attempts[night] for night in base.level], base.centre, look.deviation)

    @cached_property
    def days(self) -> tuple[str, ...]:
        """Date of each night, UTC."""
        return tuple(run.created_utc[:10] for run in self.series.runs)

    def smallest(self, metric: str) -> float:
        """The smallest effect of a metric, a logarithm."""
        return math.log1p(self.effects.of(metric))

    def shift(self, row: FigureKey) -> float:
        """The part of a row's deviation tonight that all points share, a logarithm; 0 where its level has it, too."""
        shift = self.shifts.get(noun_of(row.metric) or "")
        return shift.value if shift and not self.rows[row].is_off else 0.0

    def host_shifts(self) -> Iterator[HostShift]:
        """The shift of all points in speed, and that in energy."""
        for noun, shift in self.shifts.items():
            sign = -1 if noun == "energy" else 1
            yield HostShift(
                noun=noun,
                fraction=as_fraction(sign * shift.value),
                num_shifted=shift.num_shifted,
                num_points=shift.num_points,
                evidence=tuple(host_evidence(self.series)),
                level_change=shift.change.dated(self.days, sign) if shift.change else None,
            )

    def _figures(self, row: FigureKey, look: Look) -> GateRow:
        """The figures of a row, before any decision."""
        base = self.learnt[row]
        return GateRow(
            row=row,
            unit=METRICS[row.metric].unit,
            state="pass",
            before=1 + as_fraction(METRICS[row.metric].sign * base.centre),
            now=self.series.values(row)[-1],
            fraction=as_fraction(METRICS[row.metric].sign * look.deviation),
            num_recent=len(look.nights),
            num_nights=base.num_nights,
            spread_fraction=base.sd,
            detectable_fraction=detectable(base, len(self.learnt)),
            p=look.p,
        )

    def _decided(self, row: FigureKey, look: Look, is_flagged: bool) -> GateRow:
        """A row that is flagged, drifts, moved with the host, or passes."""
        figures, sign = self._figures(row, look), METRICS[row.metric].sign
        drift = drift_of(self.rows[row], self.learnt[row].correlation, self.smallest(row.metric))
        if is_flagged:
            points = self.series.points(row.point_id)
            clock = clock_change(points, look.nights, self.learnt[row].level)
            as_far = nights_as_far(self.rows[row], look, map(self.rows.__getitem__, self.learnt))
            dated = replace(figures, level_change=self._dated(row, look), nights_as_far=as_far)
            words = clock_words(points, self.learnt[row].level)
            if noun_of(row.metric) == "speed" and in_cycles(look.deviation, clock, self.smallest(row.metric)):
                return replace(dated, state="clock", reason=words)
            return replace(dated, state="regressed", reason=words if clock else "")
        if drift is not None and drift.is_lower:
            change = drift.dated(self.days, sign)
            # A rerun is compared with the level before the change: it clears what is back there.
            return replace(
                figures,
                state="regressed",
                reason="no single night shows it",
                level_change=change,
                before=1 + as_fraction(sign * drift.before),
                fraction=change.fraction,
            )
        tonight = (self.rows[row].values[-1] or 0.0) - self.learnt[row].centre
        if self.shift(row) and abs(tonight) >= self.smallest(row.metric):
            return replace(figures, state="host off", fraction=as_fraction(sign * tonight), num_recent=1)
        return figures

    def _learning(self, row: FigureKey) -> GateRow:
        """A row with too few nights, or whose nights were all measured otherwise."""
        nights = self.rows[row]
        known = len(admitted(nights, self.smallest(row.metric)))
        ours = GateRow(row=row, unit=METRICS[row.metric].unit, state="learning", now=self.series.values(row)[-1])
        if not known and nights.start == 0 and (difference := self.series.otherwise(row)):
            return replace(ours, state="incomparable", reason=difference)
        reason = (
            f"{known} of {MIN_NIGHTS} nights"
            if known < MIN_NIGHTS
            else f"level accepted on {accepted_on(row, self.accepted)}; judged from the next night"
        )
        return replace(ours, num_nights=known, reason=reason)

    def _dated(self, row: FigureKey, look: Look) -> LevelChange | None:
        """The most likely night of a change that a look shows."""
        level = self.rows[row].recent
        change = newest_change([*level.values()], is_lower=look.deviation < 0)
        return change.at([*level]).dated(self.days, METRICS[row.metric].sign) if change else None
