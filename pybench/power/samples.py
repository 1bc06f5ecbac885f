"""Samples of a GPU's power: the driver's series and the polled fields, on CLOCK_MONOTONIC, without glitches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.core.statistics.spread import SD_OF_MAD
from pybench.power.trace import MISSING, GpuTrace, OffsetColumns, PolledColumns, SeriesColumns

Column = npt.NDArray[np.float64]
Nanoseconds = npt.NDArray[np.int64]
Windows = Sequence[tuple[float, float]]
"""Starts and ends in seconds, ascending, without overlap."""

GAP_S = 0.3
"""A longer time without a sample is a gap. The driver samples every 20 to 100 ms."""
# Fewer samples give no useful standard deviation.
MIN_DEVIATING = 50

# Limits of a plausible reading. A board in use draws tens of watts, none draws 10 kW. A lone reading above 3 times the
# usual power is a driver error above 3 kW, or if the sensor's low-pass left no tail of a seventh in its neighbours.
GLITCH_W = 1.0
GLITCH_TIMES = 3.0
TAIL_TIMES = 7.0
LONE_MOST_W = 3e3
IMPOSSIBLE_W = 10e3
# Percentile of the readings that counts as the usual power.
USUAL_PERCENTILE = 95
# Readings looked at for the percentile.
MOST_USUAL = 10_000


def seconds_since(times_ns: Sequence[int] | Nanoseconds, origin_ns: int) -> Column:
    """Seconds since ``origin_ns``. The difference is taken in integers: a float lacks digits for ns since boot."""
    return np.asarray((np.asarray(times_ns, dtype=np.int64) - origin_ns) / 1e9)


def median(values: Column | Nanoseconds) -> float:
    """Median of values without NaN, three times faster than NumPy's for some hundred values."""
    half = len(values) // 2
    parted = np.partition(values, half if len(values) % 2 else (half - 1, half))
    return float(parted[half] if len(values) % 2 else (parted[half - 1] + parted[half]) / 2)


def series_times_ns(series: SeriesColumns, offsets: OffsetColumns) -> Nanoseconds:
    """Stamps of the series on CLOCK_MONOTONIC, by the last offset measured before each stamp, else the first offset."""
    realtime_ns = np.asarray(series.realtime_ns, dtype=np.int64)
    if not len(offsets.t_ns):
        return realtime_ns
    offsets_ns = np.asarray(offsets.realtime_offset_ns, dtype=np.int64)
    measured_ns = np.asarray(offsets.t_ns, dtype=np.int64) + offsets_ns
    newest = np.searchsorted(measured_ns, realtime_ns, side="right") - 1
    return np.asarray(realtime_ns - offsets_ns[np.maximum(newest, 0)])


# Resolution of the driver's power in W, and its standard deviation.
POWER_STEP_W = 0.323
POWER_STEP_SIGMA_W = POWER_STEP_W / 12**0.5
# White noise of a sample as a fraction of its power: measured on H200s, and at most; beyond is the load's.
USUAL_NOISE_FRACTION = 0.024
MOST_NOISE_FRACTION = 0.03
# Standard deviation of a sample less its two neighbours' mean, over a sample's own.
NEIGHBOUR_SIGMAS = 1.5**0.5
# Samples needed for an estimate of the noise.
MIN_NOISY = 6


@dataclass(frozen=True)
class Samples:
    """Power over time: ascending times without duplicates, no missing values, no glitches."""

    time_s: Column
    power_w: Column
    num_glitches: int

    @classmethod
    def of(cls, time_s: Column, power_w: Column) -> Self:
        """From readings in any order, with duplicates and glitches."""
        if (time_s[1:] <= time_s[:-1]).any():
            time_s, first = np.unique(time_s, return_index=True)
            power_w = power_w[first]
        glitch = power_w < GLITCH_W
        drawn_w = power_w[~glitch]
        if len(drawn_w) and power_w.max() > GLITCH_TIMES * median(drawn_w):
            glitch |= _too_high(power_w, float(np.percentile(drawn_w, USUAL_PERCENTILE)))
        return cls(time_s[~glitch], power_w[~glitch], int(glitch.sum()))

    def near(self, start_s: float, end_s: float) -> Samples:
        """Samples between two times."""
        first, end = np.searchsorted(self.time_s, start_s), np.searchsorted(self.time_s, end_s, side="right")
        return Samples(self.time_s[first:end], self.power_w[first:end], self.num_glitches)

    def have_gap(self, windows_s: Windows) -> bool:
        """Whether some window has a time longer than ``GAP_S`` without a sample."""
        return any(
            bool(np.diff(np.concatenate(([start_s], self.near(start_s, end_s).time_s, [end_s]))).max() > GAP_S)
            for start_s, end_s in windows_s
        )

    def deviation_fraction(self, windows_s: Windows) -> float:
        """Standard deviation over mean within windows; infinite for fewer than ``MIN_DEVIATING`` samples."""
        power_w = np.concatenate([self.near(start_s, end_s).power_w for start_s, end_s in windows_s])
        return float(power_w.std() / power_w.mean()) if len(power_w) >= MIN_DEVIATING else math.inf

    @property
    def period_s(self) -> float | None:
        """Median spacing; ``None`` for fewer than two samples."""
        return median(np.diff(self.time_s)) if len(self.time_s) > 1 else None


def sample_noise_w(power_w: Column) -> Column:
    """Standard deviation of each sample's noise in W, by its deviation from its neighbours' mean."""
    fraction = 0.0
    if len(power_w) >= MIN_NOISY:
        fraction = min(SD_OF_MAD * _energy.middle_deviation(power_w) / NEIGHBOUR_SIGMAS, MOST_NOISE_FRACTION)
    return np.asarray(np.hypot(POWER_STEP_SIGMA_W, fraction * power_w))


def noise_w(power_w: Column) -> float:
    """Standard deviation of the samples' noise in W, at most that of an H200."""
    if not len(power_w):
        return 0.0
    usual_w = math.hypot(POWER_STEP_SIGMA_W, USUAL_NOISE_FRACTION * float(power_w.mean()))
    return min(usual_w, median(sample_noise_w(power_w)))


def _too_high(power_w: Column, usual_w: float) -> npt.NDArray[np.bool_]:
    """Mask of readings that the board did not draw. Adjacent high readings confirm each other."""
    high = power_w > GLITCH_TIMES * usual_w
    if not high.any():
        return high
    neighbour_w = np.zeros_like(power_w)
    neighbour_w[1:] = power_w[:-1]
    neighbour_w[:-1] = np.maximum(neighbour_w[:-1], power_w[1:])
    lone = high & (neighbour_w <= GLITCH_TIMES * usual_w)
    without_tail = (power_w > TAIL_TIMES * neighbour_w) | (power_w > LONE_MOST_W)
    return np.asarray((lone & without_tail) | (high & (power_w > IMPOSSIBLE_W)))


def samples_of(series: SeriesColumns, offsets: OffsetColumns, origin_ns: int, spans_s: Windows = ()) -> Samples:
    """Samples of a series in seconds since ``origin_ns``, only near ``spans_s`` if any are given."""
    near, spans_ns = series, [[origin_ns + int(at_s * 1e9) for at_s in span] for span in spans_s]
    if spans_ns and len(near.realtime_ns):  # at least the samples within the spans; stamps ascend
        realtime_ns, power_mw = np.asarray(near.realtime_ns, dtype=np.int64), np.asarray(near.power_mw)
        offsets_ns = np.asarray(offsets.realtime_offset_ns, dtype=np.int64)
        lowest_ns, highest_ns = (int(offsets_ns.min()), int(offsets_ns.max())) if len(offsets_ns) else (0, 0)
        parts, end = [], 0
        for start_ns, end_ns in spans_ns:
            first = max(end, int(np.searchsorted(realtime_ns, start_ns + lowest_ns)))
            end = max(first, int(np.searchsorted(realtime_ns, end_ns + highest_ns, side="right")))
            parts.append(slice(first, end))
        stamps_ns, powers_mw = (np.concatenate([column[part] for part in parts]) for column in (realtime_ns, power_mw))
        near = SeriesColumns(realtime_ns=stamps_ns, power_mw=powers_mw)  # type: ignore[arg-type]
    power_mw = np.asarray(near.power_mw, dtype=np.int64)
    known = power_mw != MISSING
    return Samples.of(seconds_since(series_times_ns(near, offsets), origin_ns)[known], power_mw[known] / 1e3)


def power_within_mw(
    series: SeriesColumns, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]]
) -> Nanoseconds:
    """Power in mW of the series' samples within windows on CLOCK_MONOTONIC, by the last offset of the clocks."""
    realtime_ns, power_mw = np.asarray(series.realtime_ns, dtype=np.int64), np.asarray(series.power_mw, dtype=np.int64)
    offset_ns = int(offsets.realtime_offset_ns[-1]) if len(offsets.realtime_offset_ns) else 0
    edges = np.searchsorted(realtime_ns, np.asarray(windows_ns, dtype=np.int64) + offset_ns, side="right")
    return np.concatenate([power_mw[first:end] for first, end in edges])


def max_power_w(gpu: GpuTrace, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]]) -> float | None:
    """Highest reading within windows, of the series, else of the polled instant power; ``None`` if there is none."""
    highest_w = highest_power_w(power_within_mw(gpu.series, offsets, windows_ns))
    if highest_w is None:
        polled = SeriesColumns(realtime_ns=gpu.polled.t_ns, power_mw=gpu.polled.instant_mw)
        highest_w = highest_power_w(power_within_mw(polled, OffsetColumns(), windows_ns))
    return highest_w


def highest_power_w(power_mw: Nanoseconds) -> float | None:
    """The highest reading that is no glitch, in W; ``None`` if there is none."""
    if not len(power_mw):
        return None
    highest_mw = np.max(power_mw)
    some_mw = power_mw[:: max(1, len(power_mw) // MOST_USUAL)]
    usual_w = max(float(np.percentile(some_mw, USUAL_PERCENTILE)) / 1e3, 0.0)
    if highest_mw > GLITCH_TIMES * usual_w * 1e3:
        highest_mw = np.max(power_mw, where=~_too_high(power_mw / 1e3, usual_w), initial=MISSING)
    return float(highest_mw) / 1e3 if highest_mw >= GLITCH_W * 1e3 else None


def polled_power_mw(polled: PolledColumns) -> Nanoseconds:
    """The instant power; boards before Ampere report only the average."""
    instant_mw = np.asarray(polled.instant_mw, dtype=np.int64)
    return instant_mw if np.any(instant_mw != MISSING) else np.asarray(polled.average_mw, dtype=np.int64)
