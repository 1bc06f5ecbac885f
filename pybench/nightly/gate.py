"""The decision of a night: every row against the nights before it, over all rows together.

A row is flagged when a look at the newest nights stands among all rows and is large enough (:mod:`night_look`), or when
its level has changed (:mod:`level_change`). What all points share is taken out first and is one finding
(:mod:`host_shift`). A flagged speed whose change vanishes in clock cycles is *clock*.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pybench.core.keys import BUILD
from pybench.core.statistics.interval import as_fraction
from pybench.model.figures import NOT_ALONE, FigureKey, RunFigures, SmallestEffects
from pybench.model.workloads.registry import METRICS
from pybench.nightly.accepted import about, accepted_on, level_start, of_all_points
from pybench.nightly.baseline import MIN_NIGHTS, Baseline, Nights, admitted, baselines
from pybench.nightly.comparison import absence_of
from pybench.nightly.history import Series
from pybench.nightly.host_shift import (
    Shift,
    clock_change,
    clock_words,
    host_evidence,
    in_cycles,
    nights_apart,
    noun_of,
    shift_change,
    shift_tonight,
    shifts_by_night,
    start_of,
)
from pybench.nightly.night_look import (
    SECOND_SPEED,
    SEEN_BEFORE,
    Look,
    Split,
    detectable,
    flagged,
    is_second_speed,
    last_change,
    look,
    newest_change,
    nights_as_far,
)
from pybench.nightly.values import BY_IMPORTANCE, Accepted, GateResult, GateRow, GateState, HostShift, LevelChange

MAX_NIGHTS = 120
"""Nights before the one that is judged that are looked at."""
_NOUNS = ("speed", "energy")


def judge_night(
    series: Series, accepted: Sequence[Accepted] = (), effects: SmallestEffects | None = None
) -> GateResult:
    """Judge the last run of a series by those before it. Reruns may confirm or clear what it flags."""
    night = _Night.of(series.newest(MAX_NIGHTS + 1), accepted, effects or SmallestEffects())
    rows = tuple(sorted((*map(night.with_builds, night.judged()), *night.absent()), key=_importance))
    host = tuple(night.host_shifts())
    unmeasured = tuple(night.unmeasured({row.row.point_id for row in rows}))
    return GateResult(
        run_id=series.last.run_id,
        suite=series.last.suite,
        state="incomparable"
        if series.apart and len(series.runs) == 1 and not unmeasured
        else overall(rows, host, unmeasured),
        rows=rows,
        num_nights=len(series.runs) - 1,
        host=host,
        differences=tuple(f"{text} ({count})" for text, count in (series.apart or {}).items()),
        unmeasured=unmeasured,
        broken=series.broken,
        num_later=series.num_later,
        is_unfinished=any(point.is_missing and not point.num_failed for point in series.last.points),
        effects=night.effects,
        note=None if rows or unmeasured else _why_no_row(series.last),
        acceptance=of_all_points(series.last, host) if host else None,
    )


def _why_no_row(run: RunFigures) -> str | None:
    """Of a run without any figure: why its first point has none."""
    return next((f"{point.id}: {point.absence}" for point in run.points if point.absence), None)


def overall(
    rows: Sequence[GateRow], host: Sequence[HostShift] = (), unmeasured: Sequence[tuple[str, str]] = ()
) -> GateState:
    """The worst state. Rows that still learn, or improve, do not keep a night from passing in which others pass."""
    found = (
        {row.state for row in rows} | ({"host off"} if host else set()) | ({"not measured"} if unmeasured else set())
    )
    worst: GateState = next((state for state in BY_IMPORTANCE if state in found), "learning")
    return "pass" if worst == "improved" and "pass" in found else worst


@dataclass(frozen=True)
class _Night:
    """Everything that the rows of one night are judged with. ``learnt`` are the rows whose baseline is known."""

    series: Series
    effects: SmallestEffects
    accepted: Sequence[Accepted]
    expected: Mapping[FigureKey, Nights]
    rows: Mapping[FigureKey, Nights]
    learnt: Mapping[FigureKey, Baseline]
    shifts: Mapping[str, Shift]

    @classmethod
    def of(cls, series: Series, accepted: Sequence[Accepted], effects: SmallestEffects) -> _Night:
        # A date that is still to come would leave every row without a level to be held to.
        accepted = [one for one in about(series, accepted) if one.holds_on(series.last.created_utc)]
        expected = {row: _nights(series, row, accepted) for row in series.rows}
        rows = {row: nights for row, nights in expected.items() if nights.values[-1] is not None}
        first = _baselines(rows, effects)
        off = _nights_off(rows, first, effects)
        # Of a host that changed within its first nights too few may be left to judge by.
        if off and len(series.runs) - 1 - len(off) >= MIN_NIGHTS:
            rows = {row: nights.set_apart(off) for row, nights in rows.items()}
            learnt = _baselines(rows, effects)
        else:
            learnt = first
        shifts = {noun: shift_tonight(rows, learnt, noun, math.log1p(effects.default)) for noun in _NOUNS}
        return cls(
            series, effects, accepted, expected, rows, learnt, {noun: one for noun, one in shifts.items() if one}
        )

    def judged(self) -> Iterator[GateRow]:
        """Rows that were measured tonight."""
        smallest = {metric: self.smallest(metric) for metric in {row.metric for row in self.learnt}}
        sides, any_sides = (
            [
                {
                    row: look(self.rows[row], b, self.shift(row), worse=worse, is_new=new)
                    for row, b in self.learnt.items()
                }
                for worse in (True, False)
            ]
            for new in (True, False)
        )
        drawn: dict[FigureKey, str] = {}
        for looks, any_looks in zip(sides, any_sides, strict=True):
            stand = flagged(looks, smallest)
            drawn |= dict.fromkeys(flagged(any_looks, smallest) - stand, SEEN_BEFORE)
            drawn |= {row: SECOND_SPEED for row in stand if self._is_drawn(row, looks[row])}
        worse, better = (
            flagged({row: found for row, found in looks.items() if drawn.get(row) != SECOND_SPEED}, smallest)
            for looks in sides
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
                found = sides[0][row] if row in worse else min((s[row] for s in sides), key=lambda one: one.p)
                decided = self._decided(row, found, row in worse)
                yield replace(decided, reason=drawn[row]) if row in drawn and decided.state == "pass" else decided

    def with_builds(self, row: GateRow) -> GateRow:
        """A changed row with the build of the workers before the change and tonight, where they differ."""
        if row.level_change is None:
            return row
        before = [run for run in self.series.runs[:-1] if run.created_utc[:10] < row.level_change.since]
        sides = [run.keys.get(BUILD) for run in (*before[-1:], self.series.last)]
        if len(sides) < 2 or None in sides or sides[0] == sides[1]:  # noqa: PLR2004 - before and now
            return row
        return replace(row, reason="; ".join(filter(None, (row.reason, f"workers of build {sides[0]} -> {sides[1]}"))))

    def _is_drawn(self, row: FigureKey, found: Look) -> bool:
        """Whether the nights that were looked at show a second speed of single attempts."""
        attempts = self.series.attempts(row)
        base = self.learnt[row].before(found.nights[0]) or self.learnt[row]
        tonight = [value - self.shift(row) for value in attempts[-1]]
        seen = [*(attempts[night] for night in found.nights[:-1]), tonight]
        return is_second_speed(seen, [attempts[night] for night in base.level], base.centre, found.deviation)

    def smallest(self, metric: str) -> float:
        """The smallest effect of a metric, a logarithm."""
        return math.log1p(self.effects.of(metric))

    def shift(self, row: FigureKey) -> float:
        """What all points share of a row's deviation tonight; its level may have it, too."""
        shift = self.shifts.get(noun_of(row.metric) or "")
        return shift.value if shift and not self.rows[row].is_off else 0.0

    def host_shifts(self) -> Iterator[HostShift]:
        """Findings about the host, each once."""
        for shift in self.shifts.values():
            sign = -1 if shift.noun == "energy" else 1
            change = shift_change(self.rows, self.learnt, shift, math.log1p(self.effects.default))
            yield HostShift(
                noun=shift.noun,
                fraction=as_fraction(sign * shift.value),
                num_shifted=shift.num_shifted,
                num_points=shift.num_points,
                evidence=tuple(host_evidence(self.series)),
                level_change=self._level_change(change, sign) if change else None,
            )

    def absent(self) -> Iterator[GateRow]:
        """Rows of earlier nights that were not measured tonight, unless their own point is accepted since.

        What accepts all points of a suite accepts that they are slower or faster, and not that one is gone.
        """
        named = [one for one in self.accepted if one.point is not None]
        for row, nights in self.expected.items():
            start = level_start(self.series, row, named)
            if row in self.rows or not any(value is not None for value in nights.values[start:]):
                continue
            reason = absence_of(row, self.series.last)
            yield GateRow(row=row, unit=METRICS[row.metric].unit, state="not measured", reason=reason)

    def unmeasured(self, shown: Collection[str]) -> Iterator[tuple[str, str]]:
        """Points that were to be measured and stand in no row, each with the reason: no night has a row of them."""
        accepted = {one.point for one in self.accepted if one.metric is None}
        for point in self.series.last.points:
            if point.is_missing and point.id not in shown and point.id not in accepted:
                yield point.id, point.absence or "not measured"

    def _figures(self, row: FigureKey, found: Look | None) -> GateRow:
        """The figures of a row, before any decision."""
        base = self.learnt[row]
        return GateRow(
            row=row,
            unit=METRICS[row.metric].unit,
            state="pass",
            before=1 + as_fraction(METRICS[row.metric].sign * base.centre),
            now=self.series.values(row)[-1],
            fraction=as_fraction(METRICS[row.metric].sign * found.deviation) if found else None,
            num_recent=len(found.nights) if found else 1,
            num_nights=base.num_nights,
            spread_fraction=base.sd,
            detectable_fraction=detectable(base, len(self.learnt)),
            p=found.p if found else None,
        )

    def _decided(self, row: FigureKey, found: Look, is_flagged: bool) -> GateRow:
        """A row that is flagged, drifts, moved with the host, or passes."""
        figures = self._figures(row, found)
        drift = self._drift(row)
        if is_flagged:
            points = self.series.points(row.point_id)
            clock = clock_change(points, found.nights, self.learnt[row].level)
            as_far = nights_as_far(self.rows[row], found, map(self.rows.__getitem__, self.learnt))
            dated = replace(figures, level_change=self._dated(row, found), nights_as_far=as_far)
            if noun_of(row.metric) == "speed" and in_cycles(found.deviation, clock, self.smallest(row.metric)):
                return replace(dated, state="clock", reason=clock_words(points, self.learnt[row].level))
            return replace(
                dated, state="regressed", reason=clock_words(points, self.learnt[row].level) if clock else ""
            )
        if drift is not None and drift.is_lower:
            sign = METRICS[row.metric].sign
            change = self._level_change(drift, sign)
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
            fraction = as_fraction(METRICS[row.metric].sign * tonight)
            return replace(figures, state="host off", fraction=fraction, num_recent=1)
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

    def _drift(self, row: FigureKey) -> Split | None:
        """The newest change of level beyond chance, where it is large enough."""
        level = self.rows[row].recent
        found = last_change([*level.values()], self.learnt[row].correlation) if level else None
        if found is None or abs(found.after - found.before) < self.smallest(row.metric):
            return None
        return found.at([*level])

    def _dated(self, row: FigureKey, found: Look) -> LevelChange | None:
        """The most likely night of a change that a look shows."""
        level = self.rows[row].recent
        change = newest_change([*level.values()], is_lower=found.deviation < 0)
        return self._level_change(change.at([*level]), METRICS[row.metric].sign) if change else None

    def _level_change(self, split: Split, sign: float) -> LevelChange:
        """A split by night, of logarithms that were multiplied by ``sign``."""
        since, earliest, latest = (
            self.series.runs[night].created_utc[:10] for night in (split.place, split.first, split.last)
        )
        fraction = as_fraction(sign * (split.after - split.before))
        return LevelChange(since=since, earliest=earliest, latest=latest, fraction=fraction)


def _nights(series: Series, row: FigureKey, accepted: Sequence[Accepted]) -> Nights:
    """Logarithms of a row by night, higher is better; its present level begins with the last acceptance."""
    sign = METRICS[row.metric].sign
    values = tuple(sign * math.log(v) if v is not None and v > 0 else None for v in series.values(row))
    return Nights(values, level_start(series, row, accepted), attempts=series.attempts(row))


def _baselines(rows: Mapping[FigureKey, Nights], effects: SmallestEffects) -> dict[FigureKey, Baseline]:
    found: dict[FigureKey, Baseline | None] = {}
    for metric in {row.metric: None for row in rows}:
        own = {row: nights for row, nights in rows.items() if row.metric == metric}
        found.update(baselines(own, math.log1p(effects.of(metric))))
    return {row: baseline for row, baseline in found.items() if baseline is not None}


def _nights_off(
    rows: Mapping[FigureKey, Nights], centres: Mapping[FigureKey, Baseline], effects: SmallestEffects
) -> frozenset[int]:
    """Nights on which the host was off, in its speed or its energy."""
    least = math.log1p(effects.default)
    apart = [nights_apart(shifts_by_night(rows, centres, noun), least, start_of(rows, noun)) for noun in _NOUNS]
    return frozenset[int]().union(*apart)


def _importance(row: GateRow) -> tuple[int, float]:
    return BY_IMPORTANCE.index(row.state), -abs(row.fraction or 0.0)
