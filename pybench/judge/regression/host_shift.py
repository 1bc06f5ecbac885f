"""Nights on which all points moved together: the host, or software that all points share, and not 40 regressions.

The shift of a night is the median over points of their deviations from their own centres. It is judged as a row is, by
the shifts of the nights before that were no example of a shift themselves: a host that stays slow never becomes normal
by itself. Points whose change is accepted begin anew, and the host does where most of them have. Times and energies
move apart, so each has its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from pybench.compute.spread import robust_sd, variance_of
from pybench.compute.student_t import upper_tail
from pybench.judge.regression.baseline import LEAST_SD, MIN_NIGHTS, Baseline, Nights
from pybench.model.figures import Row
from pybench.model.workloads.registry import METRICS

MIN_POINTS = 5
"""Fewer points that move together may all have one cause of their own."""
_SHARE = 2 / 3
_P = 0.001
_OUT_SDS = 4.0


@dataclass(frozen=True)
class Shift:
    """Of tonight, a logarithm turned so that higher is better, and how many points show it."""

    noun: str
    value: float
    num_shifted: int
    num_points: int


def noun_of(metric: str) -> str | None:
    """What a metric measures of a host: ``speed`` or ``energy``; ``None`` for what no host changes."""
    unit = METRICS[metric].unit
    if unit.startswith("J"):
        return "energy"
    return "speed" if unit == "s" or unit.endswith("/s") else None


def shifts_by_night(rows: Mapping[Row, Nights], centres: Mapping[Row, Baseline], noun: str) -> list[float | None]:
    """The shift of each night, the last one being looked at; ``None`` with too few points."""
    found = [_of_night(rows, centres, noun, night) for night in range(_num_nights(rows))]
    return [median(one) if len(one) >= MIN_POINTS else None for one in found]


def nights_apart(shifts: Sequence[float | None], smallest: float) -> frozenset[int]:
    """Nights before the last whose shift is no example of this host: each is held against the examples before it."""
    known = {night: shift for night, shift in enumerate(shifts[:-1]) if shift is not None}
    usual: dict[int, float] = {}
    for night, shift in known.items():
        if len(usual) < MIN_NIGHTS or _is_like(shift, [*usual.values()], smallest):
            usual[night] = shift
    # The first ones had too few before them.
    like = {night for night, shift in usual.items() if _is_like(shift, [*usual.values()], smallest)}
    return frozenset(known.keys() - (like if len(like) >= MIN_NIGHTS else usual.keys()))


def _is_like(shift: float, usual: Sequence[float], smallest: float) -> bool:
    return abs(shift - median(usual)) <= max(smallest, _OUT_SDS * max(robust_sd(usual), LEAST_SD))


def shift_tonight(
    rows: Mapping[Row, Nights], centres: Mapping[Row, Baseline], noun: str, smallest: float
) -> Shift | None:
    """Tonight's shift where it is none of the host's usual ones and most points show it."""
    shifts = shifts_by_night(rows, centres, noun)
    apart = nights_apart(shifts, smallest)
    usual = [shift for n, shift in enumerate(shifts[:-1]) if shift is not None and n not in apart]
    value = shifts[-1] if shifts else None
    if value is None or len(usual) < MIN_NIGHTS or abs(value) < math.log1p(smallest):
        return None
    error = max(math.sqrt(variance_of(usual)), LEAST_SD) * math.sqrt(1 + 1 / len(usual))
    points = _of_night(rows, centres, noun, len(shifts) - 1)
    shifted = [one for one in points if one * value > 0 and abs(one) >= abs(value) / 2]
    if upper_tail(abs(value - fmean(usual)) / error, len(usual) - 1) > _P or len(shifted) < _SHARE * len(points):
        return None
    return Shift(noun, value, len(shifted), len(points))


def _num_nights(rows: Mapping[Row, Nights]) -> int:
    return max((len(nights.values) for nights in rows.values()), default=0)


def _of_night(rows: Mapping[Row, Nights], centres: Mapping[Row, Baseline], noun: str, night: int) -> list[float]:
    """Each point's deviation: the median of its metrics'."""
    points: dict[str, list[float]] = {}
    for row, nights in rows.items():
        value, baseline = nights.values[night], centres.get(row)
        if value is not None and baseline is not None and night >= nights.start and noun_of(row.metric) == noun:
            points.setdefault(row.point_id, []).append(value - baseline.centre)
    return [median(deviations) for deviations in points.values()]
