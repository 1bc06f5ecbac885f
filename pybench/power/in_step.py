"""Loads whose period keeps step with the sensor's samples, which then see the load at few phases.

Three signs. :func:`alias_fraction`: the load's known period, by errors of the counter measured on an H200.
:func:`in_step_fraction`: samples that repeat, so errors between them add up. :func:`hidden_w`: late samples. A load
that repeats within one to three samples looks steady, except in samples that come some ms late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench.power.samples import Column
from pybench.power.sensor import SensorModel

# Sampling period of every sensor measured by pybench; used where a trace does not show it.
SAMPLE_PERIOD_S = 0.020
# Firmware samples at whole ms. A median spacing within 2 % of one is rounded: some µs of error would look out of step
# after seconds.
TICK_S = 1e-3
TICK_FRACTION = 0.02
# A window gets the flag alias_risk from this possible error on, as a fraction of the energy. Evenly spread phases left
# 0.7 % on an H200.
FLAGGED_FRACTION = 0.01


# Largest error of an H200's counter over four to ten phases, as a fraction, by m and k: harmonic k of the load is at m
# times the sampling rate (docs/results/power_sensor.md). The first k of m = 2 to 4 are from one run and
# rounded up to the 10 ms figure.
_OFF_FRACTIONS = {
    1: {1: 0.26, 2: 0.153, 3: 0.078, 4: 0.050, 5: 0.024, 6: 0.037, 7: 0.027},
    2: {1: 0.09, 3: 0.026, 5: 0.049, 7: 0.012},
    3: {1: 0.09, 2: 0.049, 4: 0.014, 5: 0.027},
    4: {1: 0.09, 3: 0.012, 5: 0.028},
}
# Sampling periods of such a load, its error, and the fraction by which the periods may be off.
_ALIASES = tuple(
    (k / m, off, 0.10 if k == 1 else 0.02) for m, by_k in _OFF_FRACTIONS.items() for k, off in by_k.items()
)
# Error of a square wave over the error of its harmonic in step alone, at most.
SHAPE_TIMES = 1.25
# With phases spread by less, samples do not show the load's swing.
LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class LoadPeriods:
    """What repeats in a load: its ``periods_s``, with and without the pause between, and the times of its beginnings.

    ``begins_ns`` are on CLOCK_MONOTONIC. Without them the load counts as in step with the sensor.
    """

    periods_s: tuple[float, ...]
    begins_ns: Sequence[int] = ()

    def within(self, windows_ns: Sequence[tuple[int, int]]) -> LoadPeriods:
        """The beginnings within windows, ends included. Windows ascend."""
        begins_ns, edges_ns = np.asarray(self.begins_ns, dtype=np.int64), np.ravel(windows_ns)
        after_start, before_end = (np.searchsorted(edges_ns, begins_ns, side) % 2 == 1 for side in ("right", "left"))
        return replace(self, begins_ns=begins_ns[after_start | before_end].tolist())


def locked_fraction(begins_ns: Sequence[int], sample_period_s: float) -> float:
    """1 for a load at one phase of the sampling or its harmonics, 0 for evenly spread phases; 1 without beginnings.

    The resultant length ``|mean(exp(2πi·m·f·t))|`` (Mardia and Jupp, Directional Statistics, 2000, §2.3), the largest
    over the harmonics m of the sampling rate f.
    """
    if not len(begins_ns):
        return 1.0
    turns = (np.asarray(begins_ns, dtype=np.int64) - begins_ns[0]) / 1e9 / sample_period_s
    return max(float(np.abs(np.mean(np.exp(2j * np.pi * m * turns)))) for m in _OFF_FRACTIONS)


def alias_fraction(
    rhythm: LoadPeriods | None, sample_period_s: float | None, deviation_fraction: float = math.inf
) -> float:
    """Possible error of the joules by aliasing, as a fraction.

    Args:
        rhythm: the load's periods, ``None`` if unknown: then 0.
        sample_period_s: the sensor's, ``None`` if unknown.
        deviation_fraction: standard deviation over mean of the samples. A wave of amplitude A, locked by R, moves their
            mean by at most A·R and has a deviation of at least A·(1 - R²)/√2, which limits A.
    """
    if rhythm is None:
        return 0.0
    period_s = sample_period_s or SAMPLE_PERIOD_S
    whole_s = round(period_s / TICK_S) * TICK_S
    if abs(period_s - whole_s) <= TICK_FRACTION * period_s:
        period_s = whole_s
    off_fractions = (
        off
        for ratio, off, width in _ALIASES
        for load_s in rhythm.periods_s
        if abs(load_s / period_s - ratio) <= width * ratio
    )
    if not (largest := max(off_fractions, default=0.0)):
        return 0.0
    locked = locked_fraction(rhythm.begins_ns, period_s)
    spread = 1 - locked**2
    most = SHAPE_TIMES * math.sqrt(2) * deviation_fraction * locked / spread if spread > LEAST_SPREAD else math.inf
    return min(largest * locked, most)


# Shortest and longest cycle looked for, in samples; long windows allow longer ones.
LEAST_REPEAT, MOST_REPEAT = 2, 60
# Pairs of samples needed for an autocorrelation.
MIN_REPEATED = 20
# Autocorrelation that noise can reach, and that only a load in step reaches.
CHANCE_REPEAT, SURE_REPEAT = 0.5, 0.9
# Longest time line in sampling periods, nearly a day of 20 ms. Beyond it most samples are missing.
MOST_PLACES = 2**22


def in_step_fraction(time_s: Column, power_w: Column, period_s: float, most_repeat: int) -> float:
    """1 for a load whose samples repeat after a whole number of them, up to ``most_repeat``; 0 for none.

    The changes between samples must repeat, too: slow trends are similar at any distance.
    """
    farthest = 2 * most_repeat
    # No cycle spans a longer gap, whatever its length.
    apart = np.minimum(np.diff(np.rint((time_s - time_s[0]) / period_s)), farthest + 1)
    place = np.concatenate(([0], np.cumsum(apart.astype(np.intp))))
    if place[-1] > MOST_PLACES:
        return 0.0
    samples = _autocorrelation(place, power_w, farthest)
    changes = _autocorrelation(place[1:], power_w[1:] - power_w[:-1], farthest)
    # One match may be chance, so the cycle must match at twice its length, too.
    cycle = np.arange(LEAST_REPEAT, most_repeat + 1)
    best = min(float(np.minimum(alike[cycle], alike[2 * cycle]).max()) for alike in (samples, changes))
    return min(max((best - CHANCE_REPEAT) / (SURE_REPEAT - CHANCE_REPEAT), 0.0), 1.0)


def _autocorrelation(place: npt.NDArray[np.intp], values: Column, farthest: int) -> Column:
    """Autocorrelation of values at these places by distance; 0 where fewer than ``MIN_REPEATED`` pairs exist."""
    columns = np.zeros((2, 1 << (int(place[-1]) + farthest).bit_length()))
    columns[0, place], columns[1, place] = values - values.mean(), 1.0
    waves = np.fft.rfft(columns)
    sums, pairs = np.fft.irfft(waves.real**2 + waves.imag**2)[:, : farthest + 1]
    alike = np.where(np.rint(pairs) >= MIN_REPEATED, sums / np.maximum(pairs, 1.0), 0.0)
    return alike / alike[0] if alike[0] > 0 else np.zeros_like(alike)


# Cycle in samples, with the periods of a load in it: 50 and 100 Hz, 25 and 75 Hz, 16.7, 33.3 and 66.7 Hz.
_CYCLES = {1: (1, 2), 2: (1, 3), 3: (1, 2, 4)}
# Frequencies looked at around each, in Hz: loads nearly in step.
_OFFSETS_HZ = np.arange(-4, 5) * 0.1
# Neighbours on each side, whole cycles away, whose mean a sample is compared with.
_NEIGHBOURS = np.array([-4, -3, -2, -1, 1, 2, 3, 4])
MIN_COMPARED = 50
# Slack of the neighbours' total span in s: none missing, the outer ones in time.
SPAN_SLACK_S = 3.5e-3
# Residuals are clipped at this many standard deviations: a load's jump is no wave.
CLIP_SIGMAS = 4.0
MAD_SIGMAS = 1.4826
# Added to the standard deviation in W: the resolution of the driver's power.
RESOLUTION_SIGMA_W = 0.1
# Ridge of the least squares, per sample: a wave equal in a sample and its neighbours gets no weight.
RIDGE = 1e-3
# Amplitude over mean power, at most: power is never negative.
MOST_AMPLITUDE = 2.0
# Part of a wave that adjacent samples must show, too. Square waves showed at least 0.4, prefills and idle pipelines on
# H100s at most 0.22.
SHOWN_PART = 0.25
# Fisher's F (2 and some hundred degrees of freedom) from which a wave counts.
EVIDENCE = 13.0
# Standard deviations added to a wave's amplitude; its standard deviation is amplitude / sqrt(F).
AMPLITUDE_SIGMAS = 2.0
# Smaller shifts of a folded load, as a fraction of its power, are within the fold's own uncertainty.
LEAST_BESIDE_FOLD = 0.01


def hidden_w(time_s: Column, power_w: Column, sensor: SensorModel, *, folded: bool) -> float:
    """Possible error in W of the samples' mean power by a load in step with them; 0 without evidence of one.

    Only the n-th harmonic of a load that repeats after n samples moves their mean: about 1/n of the first.
    ``folded`` samples are the residual of a ripple.
    """
    evidence, amplitude_w, cycle = strongest_wave(time_s, power_w, sensor)
    shift_w = SHAPE_TIMES * amplitude_w / cycle
    if evidence < EVIDENCE or (folded and shift_w < LEAST_BESIDE_FOLD * float(power_w.mean())):
        return 0.0
    return shift_w * (1 + AMPLITUDE_SIGMAS / math.sqrt(evidence))


def strongest_wave(time_s: Column, power_w: Column, sensor: SensorModel) -> tuple[float, float, int]:
    """Evidence (F), amplitude in W and cycle in samples of the wave in step that explains the samples best.

    Each sample is compared with the mean of its neighbours in the cycle: late samples of a wave in step differ from it.
    """
    best = (0.0, 0.0, 1)
    adjacent = _comparable(time_s, 1, sensor.period_s)
    if len(adjacent) < MIN_COMPARED:
        return best
    since_s = time_s - time_s[len(time_s) // 2]
    for cycle, periods in _CYCLES.items():
        chosen = _comparable(time_s, cycle, sensor.period_s)
        if len(chosen) < MIN_COMPARED:
            continue
        in_step_hz = np.array(periods) / (cycle * sensor.period_s)
        frequency_hz = (in_step_hz[:, None] + _OFFSETS_HZ).ravel()
        waves = np.exp(2j * np.pi * np.outer(since_s, frequency_hz))
        evidence, amplitude_w = _fitted(waves, power_w, chosen, cycle)
        most_w = MOST_AMPLITUDE * power_w.mean() / np.hypot(1, 2 * np.pi * frequency_hz * sensor.tau_s)
        possible = amplitude_w <= most_w
        if cycle > 1:
            possible &= _fitted(waves, power_w, adjacent, 1)[1] >= SHOWN_PART * amplitude_w
        at = int(np.argmax(np.where(possible, evidence, 0.0)))
        if possible[at] and evidence[at] > best[0]:
            best = (float(evidence[at]), float(amplitude_w[at]), cycle)
    return best


def _comparable(time_s: Column, cycle: int, period_s: float) -> npt.NDArray[np.intp]:
    """Samples with all neighbours at whole cycles."""
    reach = int(_NEIGHBOURS[-1]) * cycle
    span_s = time_s[2 * reach :] - time_s[: -2 * reach]
    return np.flatnonzero(np.abs(span_s - 2 * reach * period_s) < SPAN_SLACK_S) + reach


def _fitted(
    waves: npt.NDArray[np.complex128], power_w: Column, chosen: npt.NDArray[np.intp], cycle: int
) -> tuple[Column, Column]:
    """F and amplitude in W of each wave by least squares, samples and waves both less their neighbours' mean.

    F is of clipped residuals, the amplitude of unclipped ones.
    """
    neighbours = chosen[:, None] + cycle * _NEIGHBOURS
    off_w = power_w[chosen] - power_w[neighbours].mean(axis=1)
    means = sum(waves[chosen + cycle * step] for step in _NEIGHBOURS.tolist()) / len(_NEIGHBOURS)
    own = waves[chosen] - means
    most_w = CLIP_SIGMAS * (MAD_SIGMAS * float(np.median(np.abs(off_w))) + RESOLUTION_SIGMA_W)
    clipped_w = np.clip(off_w, -most_w, most_w)
    ridge = RIDGE * len(chosen)
    real2, imaginary2 = (own.real**2).sum(axis=0) + ridge, (own.imag**2).sum(axis=0) + ridge
    both = (own.real * own.imag).sum(axis=0)
    determinant = real2 * imaginary2 - both**2

    def weights(values_w: Column) -> tuple[Column, Column, Column]:
        real_w, imaginary_w = own.real.T @ values_w, own.imag.T @ values_w
        cosine_w = (imaginary2 * real_w - both * imaginary_w) / determinant
        sine_w = (real2 * imaginary_w - both * real_w) / determinant
        return cosine_w, sine_w, cosine_w * real_w + sine_w * imaginary_w

    explained_w2 = weights(clipped_w)[2]
    left_w2 = np.maximum(float(clipped_w @ clipped_w) - explained_w2, 1e-9)
    cosine_w, sine_w, _ = weights(off_w)
    return explained_w2 / 2 / (left_w2 / (len(chosen) - 2)), np.hypot(cosine_w, sine_w)
