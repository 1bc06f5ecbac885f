"""Nights on which all points moved together: the host, or software that all points share, and not 40 regressions.

The shift of a night is the median over points of their deviations from their own centres. It is judged like a row, by
the usual shifts of earlier nights: a host that stays slow never becomes normal by itself. The host's level begins anew
when the changes of most points are accepted. Its spread stays and judges the first nights of the new level. Speed and
energy have separate shifts. Shifts and ``smallest_log``, the smallest effect, are logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median, median_low

from pybench.core.statistics.distributions import upper_tail
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import LEAST_SD, pooled_variance, robust_sd
from pybench.model.figures import FigureKey, PointFigures
from pybench.model.workloads.registry import METRICS
from pybench.nightly.baseline import MIN_NIGHTS, Baseline, Nights, parted
from pybench.nightly.comparison import clock_text
from pybench.nightly.history import Series
from pybench.nightly.night_look import Split, lasting_change, newest_change

NOUNS = ("speed", "energy")
"""Quantities that shift apart from each other."""
MIN_POINTS = 5
"""Fewer points that move together may all have one cause of their own."""
_SHARE = 2 / 3
_P = 0.001
_OUT_SDS = 4.0
_LEAST_CELSIUS = 3.0
_LEAST_CLOCK = 0.005

Points = Sequence[PointFigures | None]
"""One point by night, tonight's last; ``None`` where it was not measured."""


@dataclass(frozen=True)
class Shift:
    """Of tonight, a logarithm turned so that higher is better, and how many points show it.

    ``change`` is the most likely night on which the shared level changed to tonight's.
    """

    value: float
    num_shifted: int
    num_points: int
    change: Split | None


def noun_of(metric: str) -> str | None:
    """The quantity of a metric, ``speed`` or ``energy``; ``None`` for memory and counts, which no host changes."""
    unit = METRICS[metric].unit
    if unit.startswith("J"):
        return "energy"
    return "speed" if unit == "s" or unit.endswith("/s") else None


@dataclass(frozen=True)
class HostNights:
    """Deviations of one quantity on each night; the last night is judged.

    ``points`` are the deviations of each night's points from their own centres. ``start`` is the first night of the
    host's present level: that from which most rows have theirs.
    """

    points: tuple[list[float], ...]
    start: int
    smallest_log: float

    @classmethod
    def of(
        cls, rows: Mapping[FigureKey, Nights], centres: Mapping[FigureKey, Baseline], noun: str, smallest_log: float
    ) -> HostNights:
        """Compute the deviations of the quantity ``noun``. A point's deviation is the median over its metrics."""
        of_noun = {row: nights for row, nights in rows.items() if noun_of(row.metric) == noun}
        points = []
        for night in range(max((len(nights.values) for nights in of_noun.values()), default=0)):
            deviations: dict[str, list[float]] = {}
            for row, nights in of_noun.items():
                value, baseline = nights.values[night], centres.get(row)
                if value is None or baseline is None:
                    continue
                centre = baseline.centre if night >= nights.start else baseline.earlier_centre
                if centre is not None:
                    deviations.setdefault(row.point_id, []).append(value - centre)
            points.append([*map(median, deviations.values())])
        return cls(tuple(points), median_low([nights.start for nights in of_noun.values()] or [0]), smallest_log)

    @cached_property
    def shifts(self) -> dict[int, float]:
        """The shift of each night that has enough points."""
        return {night: median(points) for night, points in enumerate(self.points) if len(points) >= MIN_POINTS}

    @cached_property
    def apart(self) -> frozenset[int]:
        """Nights before the last whose shift is unusual. Each is compared with the usual nights before it."""
        known, _ = parted(self.shifts, len(self.points) - 1)
        earlier, since = parted(known, self.start)
        before = _alike(earlier, self.smallest_log)
        sd = max(robust_sd([*before.values()]), LEAST_SD) if len(before) >= MIN_NIGHTS else None
        return frozenset(known.keys() - before.keys() - _alike(since, self.smallest_log, sd).keys())

    @property
    def tonight(self) -> Shift | None:
        """Tonight's shift where it is none of the host's usual ones and most points show it."""
        tonight = len(self.points) - 1
        usual = {night: shift for night, shift in self.shifts.items() if night < tonight and night not in self.apart}
        earlier, level = ([*part.values()] for part in parted(usual, self.start))
        value = self.shifts.get(tonight)
        if value is None or not level or len(usual) < MIN_NIGHTS or abs(value) < self.smallest_log:
            return None
        variance, freedom = pooled_variance([level, earlier])
        error = max(math.sqrt(variance), LEAST_SD) * math.sqrt(1 + 1 / len(level))
        points = self.points[-1]
        shifted = [point for point in points if point * value > 0 and abs(point) >= abs(value) / 2]
        if upper_tail(abs(value - fmean(level)) / error, freedom) > _P or len(shifted) < _SHARE * len(points):
            return None
        return Shift(value, len(shifted), len(points), self._change(usual, is_lower=value < 0))

    def _change(self, usual: Collection[int], *, is_lower: bool) -> Split | None:
        """The most likely night on which the level changed to tonight's; places are nights."""

        def since(first: int) -> dict[int, float]:
            return {night: shift for night, shift in self.shifts.items() if night in usual or night >= first}

        # Nights on which an accepted level was still to be accepted are no change of it.
        known = since(self.start)
        change = lasting_change([*known.values()], is_lower=is_lower)
        if change is None:
            # A bad night not long before a fresh change would be taken for its first one.
            known = since(max(usual, default=self.start))
            change = newest_change([*known.values()], is_lower=is_lower)
        return change and change.at([*known])


def _alike(known: Mapping[int, float], smallest_log: float, sd: float | None = None) -> dict[int, float]:
    """Shifts like the ones before them. The first nights are held against each other by ``sd``, the spread before them.

    Without ``sd`` the first nights are held against all others in the end.
    """
    alike: dict[int, float] = {}
    for night, shift in known.items():
        usual = [*alike.values()]
        is_first = len(usual) < MIN_NIGHTS
        if is_first and sd is not None:
            is_like = not usual or _is_like(shift, usual, smallest_log, sd * math.sqrt(1 + 1 / len(usual)))
        else:
            is_like = is_first or _is_like(shift, usual, smallest_log)
        if is_like:
            alike[night] = shift
    if sd is not None:
        return alike
    like = {night: shift for night, shift in alike.items() if _is_like(shift, [*alike.values()], smallest_log)}
    return like if len(like) >= MIN_NIGHTS else alike


def _is_like(shift: float, usual: Sequence[float], smallest_log: float, sd: float | None = None) -> bool:
    sd = max(robust_sd(usual), LEAST_SD) if sd is None else sd
    return abs(shift - median(usual)) <= max(smallest_log, _OUT_SDS * sd)


def clock_change(points: Points, nights: Collection[int], examples: Collection[int]) -> float | None:
    """Logarithm of the SM clock of a look's nights over that of their baseline; ``None`` where it was not read."""
    recent, before = (_clocks_hz(points[night] for night in part) for part in (nights, examples))
    return fmean(map(math.log, recent)) - math.log(median(before)) if recent and before else None


def in_cycles(deviation: float, change: float | None, smallest: float) -> bool:
    """Whether a change of speed, a logarithm, vanishes when it is counted in clock cycles."""
    if change is None or change * deviation <= 0 or abs(change) < _LEAST_CLOCK:
        return False
    return abs(deviation - change) < min(smallest, abs(deviation) / 2)


def clock_words(points: Points, examples: Collection[int]) -> str:
    """The clock before and now, and what held it."""
    now, before = points[-1], _clocks_hz(points[night] for night in examples)
    return clock_text(median(before), now) if now is not None and now.sm_clock_hz and before else ""


def host_evidence(series: Series) -> Iterator[str]:
    """Clock, temperature and what held clocks, over all points; what was not read, and what did not change."""
    clock: list[float] = []
    warmer: list[float] = []
    held: set[str] = set()
    for now in series.last.points:
        before = [point for point in series.points(now.id)[:-1] if point is not None]
        if now.sm_clock_hz and (clocks := _clocks_hz(before)):
            clock.append(math.log(now.sm_clock_hz / median(clocks)))
            warm = [point.temperature_c for point in before if point.temperature_c is not None]
            if warm and now.temperature_c is not None:
                warmer.append(now.temperature_c - median(warm))
            held |= {*now.held_by}.difference(*(point.held_by for point in before))
    if not clock:
        yield "no clock and no temperature was read"
        return
    change = median(clock)
    yield f"SM clock {100 * as_fraction(change):+.1f} %" if abs(change) >= _LEAST_CLOCK else "SM clock unchanged"
    if warmer and abs(median(warmer)) >= _LEAST_CELSIUS:
        yield f"temperature {median(warmer):+.0f} °C"
    if held:
        yield f"clocks newly held by {', '.join(sorted(held))}"


def _clocks_hz(points: Iterable[PointFigures | None]) -> list[float]:
    return [point.sm_clock_hz for point in points if point is not None and point.sm_clock_hz]
