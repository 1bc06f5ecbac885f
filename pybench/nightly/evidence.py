"""What was seen of the GPUs on a night, beside the nights before it: clock, temperature, what held the clock."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from statistics import fmean, median

from pybench.core.statistics.interval import as_fraction
from pybench.model.figures import PointFigures
from pybench.nightly.series import Series

_LEAST_CELSIUS = 3.0
_LEAST_CLOCK = 0.005

Points = Sequence[PointFigures | None]
"""One point by night, tonight's last; ``None`` where it was not measured."""


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
