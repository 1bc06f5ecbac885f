"""The driver's own power series as an energy curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench.power.energy.curve import GAP_S, Curve, Windows
from pybench.power.energy.hidden import hidden_w
from pybench.power.energy.low_pass import LowPass, noise_w, undo
from pybench.power.energy.repeats import MOST_REPEAT
from pybench.power.energy.ripple import Ripple, find_ripple
from pybench.power.energy.times import Column, Nanoseconds, middle, series_near, series_times_ns
from pybench.power.sensor import SensorModel
from pybench.power.trace import MISSING, GpuTrace, OffsetColumns, PolledColumns, SeriesColumns

MIN_SAMPLES = 4
# So few show no deviation.
MIN_DEVIATING = 50
# Samples this near an end of a window are folded: enough of them for a shape, few enough for a period that drifts.
RIPPLE_SPAN_S = 2.0
# A load in step with the samples shows in so many of those nearest to a window, or to an end of a long one.
LOOKED_AT = 250
# A board in use draws some tens of watts. Readings of three times its highest usual power may be errors of the driver,
# but several together are a load that is short beside the window, and so is one beside which the sensor's low-pass has
# left its tail: a seventh or more of it. A lone one above 3 kW, and any above 10 kW, is an error always.
GLITCH_W = 1.0
GLITCH_TIMES = 3.0
TAIL_TIMES = 7.0
LONE_MOST_W = 3e3
IMPOSSIBLE_W = 10e3
USUAL_PERCENTILE = 95
# Doubt where folded samples begin and end, as a multiple of the variance of a counter's value. With 1, 4 of 60
# simulated windows of 5 s over a load of 50.6 Hz were outside, with 2 two.
EDGE_TIMES = 2.0
# What samples in step miss adds up where a load repeats so often in a window; a longer repeat than the second is not
# looked for.
REPEATS = 4
LONGEST_REPEAT = 400
# So many readings show what is usual, and a part of them that the highest is no glitch.
MOST_USUAL = 10_000
FEW_USUAL = 1000


@dataclass(frozen=True)
class Samples:
    """Samples in order, each time once, without those that are missing or glitches."""

    time_s: Column
    power_w: Column
    num_glitches: int

    @classmethod
    def of(cls, time_s: Column, power_w: Column) -> Self:
        """From readings in any order, some of them twice, some glitches."""
        if (time_s[1:] <= time_s[:-1]).any():
            time_s, first = np.unique(time_s, return_index=True)
            power_w = power_w[first]
        glitch = power_w < GLITCH_W
        drawn_w = power_w[~glitch]
        if len(drawn_w) and power_w.max() > GLITCH_TIMES * middle(drawn_w):
            glitch |= _too_high(power_w, float(np.percentile(drawn_w, USUAL_PERCENTILE)))
        return cls(time_s[~glitch], power_w[~glitch], int(glitch.sum()))

    def near(self, start_s: float, end_s: float) -> Samples:
        """The samples taken between two times."""
        first, end = np.searchsorted(self.time_s, start_s), np.searchsorted(self.time_s, end_s, side="right")
        return Samples(self.time_s[first:end], self.power_w[first:end], self.num_glitches)

    def nearest(self, start_s: float, end_s: float, num: int) -> Samples:
        """So many samples around a window, as many before it as after it where there are."""
        first, end = np.searchsorted(self.time_s, (start_s, end_s))
        first = max(min((first + end - num) // 2, len(self.time_s) - num), 0)
        return Samples(self.time_s[first : first + num], self.power_w[first : first + num], self.num_glitches)

    def have_gap(self, windows_s: Windows) -> bool:
        """Whether nothing was sampled for ``GAP_S`` somewhere in a window."""
        inside = [(self.near(start_s, end_s).time_s, start_s, end_s) for start_s, end_s in windows_s]
        return any(_longest_s(time_s, first, last) > GAP_S for time_s, first, last in inside)

    def deviation_fraction(self, windows_s: Windows) -> float:
        """Their standard deviation within windows, over their mean; infinite where they are few."""
        power_w = np.concatenate([self.near(start_s, end_s).power_w for start_s, end_s in windows_s])
        return float(power_w.std() / power_w.mean()) if len(power_w) >= MIN_DEVIATING else math.inf

    @property
    def period_s(self) -> float | None:
        """Median spacing, ``None`` for a lone sample."""
        return middle(np.diff(self.time_s)) if len(self.time_s) > 1 else None


def _too_high(power_w: Column, usual_w: float) -> npt.NDArray[np.bool_]:
    """Which readings are more than the board drew: those next to each other bear each other out."""
    high = power_w > GLITCH_TIMES * usual_w
    if not high.any():
        return high
    beside_w = np.zeros_like(power_w)
    beside_w[1:] = power_w[:-1]
    beside_w[:-1] = np.maximum(beside_w[:-1], power_w[1:])
    lone = high & (beside_w <= GLITCH_TIMES * usual_w)
    without_tail = (power_w > TAIL_TIMES * beside_w) | (power_w > LONE_MOST_W)
    return np.asarray((lone & without_tail) | (high & (power_w > IMPOSSIBLE_W)))


def _longest_s(time_s: Column, start_s: float, end_s: float) -> float:
    """The longest time without a sample from a start to an end."""
    if not len(time_s):
        return end_s - start_s
    between_s = (time_s[1:] - time_s[:-1]).max(initial=0.0)
    return max(float(time_s[0]) - start_s, float(between_s), end_s - float(time_s[-1]))


def samples_of(gpu: GpuTrace, offsets: OffsetColumns, origin_ns: int, spans_s: Windows = ()) -> Samples:
    """The series of a GPU in seconds since ``origin_ns`` on CLOCK_MONOTONIC, only within the spans if there are any."""
    near = series_near(gpu.series, offsets, [(origin_ns + int(a * 1e9), origin_ns + int(b * 1e9)) for a, b in spans_s])
    power_mw = np.asarray(near.power_mw, dtype=np.int64)
    time_s = (series_times_ns(near, offsets) - origin_ns) / 1e9
    known = power_mw != MISSING
    if not known.all():
        time_s, power_mw = time_s[known], power_mw[known]
    return Samples.of(time_s, power_mw / 1e3)


def power_within_mw(
    series: SeriesColumns, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]]
) -> Nanoseconds:
    """Power of the samples within windows on CLOCK_MONOTONIC, in mW, by the newest offset of the clocks.

    No other sample is looked at.
    """
    realtime_ns, power_mw = np.asarray(series.realtime_ns, dtype=np.int64), np.asarray(series.power_mw, dtype=np.int64)
    offset_ns = int(offsets.realtime_offset_ns[-1]) if len(offsets.realtime_offset_ns) else 0
    edges = np.searchsorted(realtime_ns, np.asarray(windows_ns, dtype=np.int64) + offset_ns, side="right")
    parts = [power_mw[first:end] for first, end in edges]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def highest_power_w(power_mw: npt.NDArray[np.int64]) -> float | None:
    """The highest of readings that is no glitch, in W; ``None`` where none is known."""
    if not len(power_mw):
        return None
    highest_mw = np.max(power_mw)
    # What is usual is no less than the middle.
    if highest_mw > GLITCH_TIMES * middle(_some(power_mw, FEW_USUAL)):
        usual_mw = float(np.percentile(_some(power_mw, MOST_USUAL), USUAL_PERCENTILE))
        highest_mw = np.max(power_mw, where=~_too_high(power_mw / 1e3, max(usual_mw / 1e3, 0.0)), initial=MISSING)
    return float(highest_mw) / 1e3 if highest_mw >= GLITCH_W * 1e3 else None


def _some(power_mw: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """About so many of the readings, evenly spread: of a day's, each costs a read of memory."""
    return power_mw[:: max(1, len(power_mw) // most)]


def series_curve(samples: Samples, windows_s: Windows, sensor: SensorModel) -> Curve | None:
    """Energy by the series, its low-pass undone and ripples around a lone window's ends resolved.

    ``None`` when there are too few samples.
    """
    if len(samples.time_s) < MIN_SAMPLES:
        return None
    # Ripples around the ends of several windows would overlap; unresolved, they widen the bound.
    alone = len(windows_s) == 1
    found = _ripples(samples, *windows_s[0]) if alone else []
    low_pass = LowPass(sensor.tau_s, sensor.tau_sigma_s)
    ripples = tuple(
        ripple.behind(low_pass.tau_s, low_pass.sigma_s).settled(samples.time_s, samples.power_w, sensor.period_s)
        for ripple in found
    )
    smooth_w = samples.power_w - sum(ripple.power_seen_w(samples.time_s) for ripple in ripples)
    num_inside = (windows_s[-1][1] - windows_s[0][0]) / sensor.period_s
    most_repeat = int(min(max(num_inside / REPEATS, MOST_REPEAT), LONGEST_REPEAT))
    curve = undo(samples.time_s, smooth_w, low_pass, most_repeat)
    in_step_w = max((ripple.in_step_w(sensor.period_s) for ripple in ripples), default=0.0)
    drifting_j2 = [ripple.drifting_j2(sensor.period_s) for ripple in ripples]
    variance_j2 = curve.variance_j2
    for ripple, own_j2 in zip(ripples, drifting_j2, strict=True):
        # Beyond the folded samples the series takes the load for a slow wave, as the counter does.
        for edge_s in (ripple.start_s, ripple.end_s):
            variance_j2 = variance_j2 + EDGE_TIMES * own_j2 * (curve.time_s >= edge_s)
    return replace(
        curve,
        variance_j2=variance_j2,
        ripples=ripples,
        # A fold has what samples miss of each of its periods.
        repeated_j2=None if ripples else curve.repeated_j2,
        in_step_w=in_step_w,
        mean_sigma_w=max((ripple.mean_sigma_w for ripple in ripples), default=0.0),
        drifting_j2=max(drifting_j2, default=0.0),
        hidden_w=_hidden_w(replace(samples, power_w=smooth_w), windows_s, ripples, sensor) if sensor.resolves else 0.0,
    )


def _hidden_w(samples: Samples, windows_s: Windows, ripples: Sequence[Ripple], sensor: SensorModel) -> float:
    """How far the mean power of samples less their ripples may be off by a load in step with them, near the windows."""
    hidden = [0.0]
    for first_s, last_s in _spans(windows_s[0][0], windows_s[-1][1]):
        near = samples.nearest(first_s, last_s, LOOKED_AT)
        around = [ripple for ripple in ripples if ripple.start_s <= last_s and ripple.end_s >= first_s]
        for ripple in around:
            near = near.near(ripple.start_s, ripple.end_s)
        hidden.append(hidden_w(near.time_s, near.power_w, sensor, folded=bool(around)))
    return max(hidden)


def _ripples(samples: Samples, start_s: float, end_s: float) -> list[Ripple]:
    spans = _spans(start_s, end_s)
    near = [samples.near(first_s - RIPPLE_SPAN_S, last_s + RIPPLE_SPAN_S) for first_s, last_s in spans]
    found = [find_ripple(part.time_s, part.power_w, noise_w(part.power_w)) for part in near]
    return [ripple for ripple in found if ripple is not None]


def _spans(start_s: float, end_s: float) -> Windows:
    """Both ends of a window; a short one at once."""
    short = end_s - start_s <= 2 * RIPPLE_SPAN_S
    return [(start_s, end_s)] if short else [(start_s, start_s), (end_s, end_s)]


def polled_power_mw(polled: PolledColumns) -> npt.NDArray[np.int64]:
    """Power of the moment; boards before Ampere report the driver's mean alone."""
    instant_mw = np.asarray(polled.instant_mw, dtype=np.int64)
    return instant_mw if np.any(instant_mw != MISSING) else np.asarray(polled.average_mw, dtype=np.int64)
