"""Nights on which all points moved together: the host, or software that all points share, and not 40 regressions.

The shift of a night is the median over points of their deviations from their own centres. It is judged like a row, by
the usual shifts of earlier nights: a host that stays slow never becomes normal by itself. The host's level begins anew
when the changes of most points are accepted. Its spread stays and judges the first nights of the new level. Speed and
energy have separate shifts. Shifts and ``smallest_log``, the smallest effect, are logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, median_low

from pybench.core.statistics.distributions import upper_tail
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import LEAST_SD, pooled_variance, robust_sd
from pybench.model.figures import FigureKey, PointFigures
from pybench.model.workloads.registry import METRICS
from pybench.nightly.baseline import MIN_NIGHTS, Baseline, Nights
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
    """Of tonight, a logarithm turned so that higher is better, and how many points show it."""

    noun: str
    value: float
    num_shifted: int
    num_points: int


def noun_of(metric: str) -> str | None:
    """The quantity of a metric, ``speed`` or ``energy``; ``None`` for memory and counts, which no host changes."""
    unit = METRICS[metric].unit
    if unit.startswith("J"):
        return "energy"
    return "speed" if unit == "s" or unit.endswith("/s") else None


def shifts_by_night(
    rows: Mapping[FigureKey, Nights], centres: Mapping[FigureKey, Baseline], noun: str
) -> list[float | None]:
    """The shift of each night, the last one being looked at; ``None`` with too few points."""
    num_nights = max((len(nights.values) for nights in rows.values()), default=0)
    found = [_of_night(rows, centres, noun, night) for night in range(num_nights)]
    return [median(one) if len(one) >= MIN_POINTS else None for one in found]


def start_of(rows: Mapping[FigureKey, Nights], noun: str) -> int:
    """First night of the host's present level: that from which most rows have theirs."""
    return median_low([nights.start for row, nights in rows.items() if noun_of(row.metric) == noun] or [0])


def nights_apart(shifts: Sequence[float | None], smallest_log: float, start: int = 0) -> frozenset[int]:
    """Nights before the last whose shift is unusual. Each is compared with the usual nights before it.

    ``start`` is the first night of the host's present level.
    """
    known = {night: shift for night, shift in enumerate(shifts[:-1]) if shift is not None}
    earlier = _usual({night: shift for night, shift in known.items() if night < start}, smallest_log)
    since = {night: shift for night, shift in known.items() if night >= start}
    if len(earlier) >= MIN_NIGHTS:
        level = _level(since, smallest_log, max(robust_sd([*earlier.values()]), LEAST_SD))
    else:
        level = _usual(since, smallest_log)
    return frozenset(known.keys() - earlier.keys() - level.keys())


def nights_off(
    rows: Mapping[FigureKey, Nights], centres: Mapping[FigureKey, Baseline], smallest_log: float
) -> frozenset[int]:
    """Nights on which the host was off, in its speed or its energy."""
    apart = [nights_apart(shifts_by_night(rows, centres, n), smallest_log, start_of(rows, n)) for n in NOUNS]
    return frozenset[int]().union(*apart)


def _usual(known: Mapping[int, float], smallest_log: float) -> dict[int, float]:
    """Of nights before which nothing is known of the host."""
    usual: dict[int, float] = {}
    for night, shift in known.items():
        if len(usual) < MIN_NIGHTS or _is_like(shift, [*usual.values()], smallest_log):
            usual[night] = shift
    # The first ones had too few before them.
    like = {night: shift for night, shift in usual.items() if _is_like(shift, [*usual.values()], smallest_log)}
    return like if len(like) >= MIN_NIGHTS else usual


def _level(known: Mapping[int, float], smallest_log: float, sd: float) -> dict[int, float]:
    """Of the nights of an accepted level. The first ones are held against each other by the spread of those before."""
    level: dict[int, float] = {}
    for night, shift in known.items():
        usual = [*level.values()]
        known_sd = None if len(usual) >= MIN_NIGHTS else sd * math.sqrt(1 + 1 / max(len(usual), 1))
        if not usual or _is_like(shift, usual, smallest_log, known_sd):
            level[night] = shift
    return level


def _is_like(shift: float, usual: Sequence[float], smallest_log: float, sd: float | None = None) -> bool:
    sd = max(robust_sd(usual), LEAST_SD) if sd is None else sd
    return abs(shift - median(usual)) <= max(smallest_log, _OUT_SDS * sd)


def shift_tonight(
    rows: Mapping[FigureKey, Nights], centres: Mapping[FigureKey, Baseline], noun: str, smallest_log: float
) -> Shift | None:
    """Tonight's shift where it is none of the host's usual ones and most points show it."""
    shifts, start = shifts_by_night(rows, centres, noun), start_of(rows, noun)
    apart = nights_apart(shifts, smallest_log, start)
    usual = {night: s for night, s in enumerate(shifts[:-1]) if s is not None and night not in apart}
    level = [shift for night, shift in usual.items() if night >= start]
    value = shifts[-1] if shifts else None
    if value is None or not level or len(usual) < MIN_NIGHTS or abs(value) < smallest_log:
        return None
    variance, freedom = pooled_variance([level, [shift for night, shift in usual.items() if night < start]])
    error = max(math.sqrt(variance), LEAST_SD) * math.sqrt(1 + 1 / len(level))
    points = _of_night(rows, centres, noun, len(shifts) - 1)
    shifted = [one for one in points if one * value > 0 and abs(one) >= abs(value) / 2]
    if upper_tail(abs(value - fmean(level)) / error, freedom) > _P or len(shifted) < _SHARE * len(points):
        return None
    return Shift(noun, value, len(shifted), len(points))


def shift_change(
    rows: Mapping[FigureKey, Nights], centres: Mapping[FigureKey, Baseline], tonight: Shift, smallest_log: float
) -> Split | None:
    """The most likely night on which the shared level changed to tonight's; places are nights."""
    shifts, start = shifts_by_night(rows, centres, tonight.noun), start_of(rows, tonight.noun)
    usual = {night for night, shift in enumerate(shifts[:-1]) if shift is not None}
    usual -= nights_apart(shifts, smallest_log, start)

    def since(first: int) -> dict[int, float]:
        return {n: shift for n, shift in enumerate(shifts) if shift is not None and (n in usual or n >= first)}

    # Nights on which an accepted level was still to be accepted are no change of it.
    known, is_lower = since(start), tonight.value < 0
    found = lasting_change([*known.values()], is_lower=is_lower)
    if found is None:
        # A bad night not long before a fresh change would be taken for its first one.
        known = since(max(usual, default=start))
        found = newest_change([*known.values()], is_lower=is_lower)
    return found and found.at([*known])


def _of_night(
    rows: Mapping[FigureKey, Nights], centres: Mapping[FigureKey, Baseline], noun: str, night: int
) -> list[float]:
    """Each point's deviation: the median of its metrics'."""
    points: dict[str, list[float]] = {}
    for row, nights in rows.items():
        value, baseline = nights.values[night], centres.get(row)
        if value is None or baseline is None or noun_of(row.metric) != noun:
            continue
        centre = baseline.centre if night >= nights.start else baseline.earlier_centre
        if centre is not None:
            points.setdefault(row.point_id, []).append(value - centre)
    return [median(deviations) for deviations in points.values()]


def clock_change(points: Points, nights: Collection[int], examples: Collection[int]) -> float | None:
    """Logarithm of the SM clock of a look's nights over that of their baseline; ``None`` where it was not read."""
    recent = [clock for night in nights if (clock := _clock_hz(points[night])) is not None]
    before = [clock for night in examples if (clock := _clock_hz(points[night])) is not None]
    if not recent or not before:
        return None
    return fmean(map(math.log, recent)) - math.log(median(before))


def in_cycles(deviation: float, change: float | None, smallest: float) -> bool:
    """Whether a change of speed, a logarithm, vanishes when it is counted in clock cycles."""
    if change is None or change * deviation <= 0 or abs(change) < _LEAST_CLOCK:
        return False
    return abs(deviation - change) < min(smallest, abs(deviation) / 2)


def clock_words(points: Points, examples: Collection[int]) -> str:
    """The clock before and now, and what held it."""
    now = points[-1]
    before = [clock for night in examples if (clock := _clock_hz(points[night])) is not None]
    if now is None or now.sm_clock_hz is None or not before:
        return ""
    held = f", held by {', '.join(now.held_by)}" if now.held_by else ""
    return f"SM clock {median(before) / 1e6:.0f} -> {now.sm_clock_hz / 1e6:.0f} MHz{held}"


def host_evidence(series: Series) -> Iterator[str]:
    """Clock, temperature and what held clocks, over all points; what was not read, and what did not change."""
    changes = [found for point in series.last.points if (found := _changes(series.points(point.id))) is not None]
    if not changes:
        yield "no clock and no temperature was read"
        return
    clock = median(clock for clock, _, _ in changes)
    yield f"SM clock {100 * as_fraction(clock):+.1f} %" if abs(clock) >= _LEAST_CLOCK else "SM clock unchanged"
    warmer = [celsius for _, celsius, _ in changes if celsius is not None]
    if warmer and abs(median(warmer)) >= _LEAST_CELSIUS:
        yield f"temperature {median(warmer):+.0f} °C"
    words = sorted({word for _, _, held in changes for word in held})
    if words:
        yield f"clocks newly held by {', '.join(words)}"


def _changes(points: Points) -> tuple[float, float | None, frozenset[str]] | None:
    """Of one point against its earlier nights: clock, temperature, and what holds the clock that held none before."""
    now, before = points[-1], [point for point in points[:-1] if point is not None]
    clocks = [clock for point in before if (clock := _clock_hz(point)) is not None]
    if now is None or now.sm_clock_hz is None or not clocks:
        return None
    warm = [point.temperature_c for point in before if point.temperature_c is not None]
    celsius = now.temperature_c - median(warm) if warm and now.temperature_c is not None else None
    known = {word for point in before for word in point.held_by}
    return math.log(now.sm_clock_hz / median(clocks)), celsius, frozenset(now.held_by) - known


def _clock_hz(point: PointFigures | None) -> float | None:
    return point.sm_clock_hz if point is not None and point.sm_clock_hz else None
