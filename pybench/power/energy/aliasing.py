"""How far a periodic load may be misread by a sensor that samples it.

The sensor samples at ``f`` = 50 Hz behind a low-pass. What a load of period ``P`` draws at its harmonic ``k`` reads as
a constant error where ``k / P = m·f``: at ``P = (k / m)·20 ms``, the less the higher ``k``. The error comes from the
phase at which the sensor sees the load, so a load whose beginnings are spread over the sensor's phases has none:
``|mean(exp(2πi·m·f·t))|`` over the beginnings ``t``, the resultant length of circular statistics (Mardia and Jupp,
Directional Statistics, 2000, §2.3), is 1 in step and 0 where they are spread evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

SAMPLE_PERIOD_S = 0.020
# Firmware ticks in whole ms; the median of jittered stamps is off by some µs, which would drift out of step in seconds.
TICK_S = 1e-3
TICK_FRACTION = 0.02
# Aliasing of less widens the bound, but is no flag: evenly spread phases left 0.7 % of error on an H200.
FLAGGED_FRACTION = 0.01


@dataclass(frozen=True)
class _Beat:
    """Loads of ``ratio`` sampling periods, or within ``width_fraction`` of that, were off by up to ``off_fraction``."""

    ratio: float
    off_fraction: float
    width_fraction: float


# The H200's energy counter, by m and k, loads on for the part of their period in which harmonic k is strong, worst of
# four to ten phases: docs/results/power_sensor.md. Loads of 10 ms were off by 7.5 % there and by 8 to
# 9 % earlier; of 6.7 ms by 6 % and of 5 ms by 1.4 %, in one run each: taken to be no better.
_OFF_FRACTIONS = {
    1: {1: 0.26, 2: 0.153, 3: 0.078, 4: 0.050, 5: 0.024, 6: 0.037, 7: 0.027},
    2: {1: 0.09, 3: 0.026, 5: 0.049, 7: 0.012},
    3: {1: 0.09, 2: 0.049, 4: 0.014, 5: 0.027},
    4: {1: 0.09, 3: 0.012, 5: 0.028},
}
_BEATS = tuple(
    _Beat(k / m, off, 0.10 if k == 1 else 0.02) for m, by_k in _OFF_FRACTIONS.items() for k, off in by_k.items()
)
_SENSOR_HARMONICS = tuple(_OFF_FRACTIONS)
# A load that switches is off by more than the wave in step alone, by this at most.
SHAPE_TIMES = 1.25
# Phases that are spread by less show nothing of a wave.
LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class LoadPeriods:
    """What a load does again and again: its ``periods_s``, with and without what lies between, and when it began.

    Without ``begins_ns``, on CLOCK_MONOTONIC, it is taken to be in step with the sensor.
    """

    periods_s: tuple[float, ...]
    begins_ns: Sequence[int] = ()

    @classmethod
    def of_period(cls, period_s: float | None) -> LoadPeriods | None:
        """Of a load of which the period alone is known, or not even that."""
        return None if period_s is None else cls((period_s,))

    def within(self, windows_ns: Sequence[tuple[int, int]]) -> LoadPeriods:
        """The same in windows, one after the other, ends included."""
        begins_ns, edges_ns = np.asarray(self.begins_ns, dtype=np.int64), np.ravel(windows_ns)
        after_start, before_end = (np.searchsorted(edges_ns, begins_ns, side) % 2 == 1 for side in ("right", "left"))
        return replace(self, begins_ns=begins_ns[after_start | before_end].tolist())


def locked_fraction(begins_ns: Sequence[int], sample_period_s: float) -> float:
    """How far a load keeps step with a sensor, or a harmonic: 1 at one phase of it, 0 spread evenly over all phases.

    1, too, for a load that began once, or at unknown times.
    """
    if not len(begins_ns):
        return 1.0
    turns = (np.asarray(begins_ns, dtype=np.int64) - begins_ns[0]) / 1e9 / sample_period_s
    return max(float(np.abs(np.mean(np.exp(2j * np.pi * m * turns)))) for m in _SENSOR_HARMONICS)


def alias_fraction(
    rhythm: LoadPeriods | None, sample_period_s: float | None, deviation_fraction: float = math.inf
) -> float:
    """How far off joules may be because a load keeps step with a sensor, which samples every 20 ms where unknown.

    ``deviation_fraction`` is that of the samples, over their mean. A wave of amplitude ``A`` at phases that are locked
    by ``R`` moves the mean of samples by up to ``A R``, and they deviate by ``A (1 - R²) / √2`` at the least: a GPU
    without a part in the load can't be far off.
    """
    if rhythm is None:
        return 0.0
    period_s = _ticked_s(sample_period_s or SAMPLE_PERIOD_S)
    ratios = [own_s / period_s for own_s in rhythm.periods_s]
    near = [
        beat.off_fraction
        for beat in _BEATS
        for ratio in ratios
        if abs(ratio - beat.ratio) <= beat.width_fraction * beat.ratio
    ]
    if not near:
        return 0.0
    locked = locked_fraction(rhythm.begins_ns, period_s)
    spread = 1 - locked**2
    most = SHAPE_TIMES * math.sqrt(2) * deviation_fraction * locked / spread if spread > LEAST_SPREAD else math.inf
    return min(max(near) * locked, most)


def _ticked_s(period_s: float) -> float:
    """The whole ms that is meant, where one is near."""
    whole_s = round(period_s / TICK_S) * TICK_S
    return whole_s if abs(period_s - whole_s) <= TICK_FRACTION * period_s else period_s
