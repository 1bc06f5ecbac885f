"""Loads whose period keeps step with the sensor's samples, which then see the load at few phases.

Three signs. :func:`alias_fraction`: the load's known period, by errors of the counter measured on an H200.
:func:`repeats`: samples that repeat, so errors between them add up. :func:`hidden_w`: late samples. A load
that repeats within one or two samples looks steady, except in samples that come some ms late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench.power.samples import Column

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


# Shortest and longest cycle looked for, in samples.
LEAST_REPEAT, MOST_REPEAT = 2, 60
# Pairs of samples needed for an autocorrelation.
MIN_REPEATED = 20
# Autocorrelation that noise can reach, and that only a load in step reaches.
CHANCE_REPEAT, SURE_REPEAT = 0.5, 0.9
# Longest time line in sampling periods, nearly a day of 20 ms. Beyond it most samples are missing.
MOST_PLACES = 2**22
# Changes are alike down to this autocorrelation; longer cycles than this, in samples, add too little.
LEAST_ALIKE, LONGEST_ALIKE = 0.1, 8


def repeats(time_s: Column, power_w: Column, period_s: float) -> tuple[float, float]:
    """How samples repeat: in step, from 0 to 1, in cycles of up to ``MOST_REPEAT``; and the variance alike errors add.

    Changes between samples must repeat, too: slow trends are similar at any distance. The variance is a multiple of the
    cells' own. Over a cycle of n cells errors cancel but for their n-th harmonic, 1/n² of it in each alike cycle.
    """
    farthest = 2 * MOST_REPEAT
    # No cycle spans a longer gap, whatever its length.
    apart = np.minimum(np.diff(np.rint((time_s - time_s[0]) / period_s)), farthest + 1)
    place = np.concatenate(([0], np.cumsum(apart.astype(np.intp))))
    if place[-1] > MOST_PLACES:
        return 0.0, 0.0
    samples = _autocorrelation(place, power_w, farthest)
    changes = _autocorrelation(place[1:], power_w[1:] - power_w[:-1], farthest)
    # One match may be chance, so the cycle must match at twice its length, too.
    cycle = np.arange(LEAST_REPEAT, MOST_REPEAT + 1)
    best = min(float(np.minimum(alike[cycle], alike[2 * cycle]).max()) for alike in (samples, changes))
    shared = 0.0
    for num in range(LEAST_REPEAT, LONGEST_ALIKE + 1):
        following = changes[num::num][np.logical_and.accumulate(changes[num::num] >= LEAST_ALIKE)]
        shared = max(shared, 2 * float(np.minimum(following, 1.0).sum()) / num**2)
    return min(max((best - CHANCE_REPEAT) / (SURE_REPEAT - CHANCE_REPEAT), 0.0), 1.0), shared


def _autocorrelation(place: npt.NDArray[np.intp], values: Column, farthest: int) -> Column:
    """Autocorrelation of values at these places by distance; 0 where fewer than ``MIN_REPEATED`` pairs exist."""
    columns = np.zeros((2, 1 << (int(place[-1]) + farthest).bit_length()))
    columns[0, place], columns[1, place] = values - values.mean(), 1.0
    waves = np.fft.rfft(columns)
    sums, pairs = np.fft.irfft(waves.real**2 + waves.imag**2)[:, : farthest + 1]
    alike = np.where(np.rint(pairs) >= MIN_REPEATED, sums / np.maximum(pairs, 1.0), 0.0)
    return alike / alike[0] if alike[0] > 0 else np.zeros_like(alike)


# Waves of one and two turns in a cycle, and nearly in step, in Hz beside.
_TURNS, _BESIDE_HZ = np.array([[1], [2]]), np.arange(-4, 5) * 0.1
# A sample is compared with the mean of itself and this many on each side.
REACH = 4
MIN_COMPARED = 50
# Slack in s of the time between the outer ones: none is missing.
SPAN_SLACK_S = 3.5e-3
# Ridge of the least squares, per sample: evenly spaced samples show no wave.
RIDGE = 1e-3
# Fisher's F (2 and some hundred degrees of freedom) from which a wave counts, of all samples and, by their own
# residuals, of each half. Of 199 windows on two H200s one had both; 18 had the first.
EVIDENCE, EVIDENCE_OF_HALF = 13.0, 3.0
# Standard deviations added to a wave's amplitude; its standard deviation is amplitude / sqrt(F).
AMPLITUDE_SIGMAS = 2.0


def hidden_w(time_s: Column, power_w: Column, period_s: float) -> float:
    """Possible error in W of the samples' mean power by a load that repeats within one or two; 0 without evidence.

    Of a load that repeats after two samples only the second harmonic moves their mean: about half of the first.
    """
    return max(
        _in_step_w(time_s[first::cycle], power_w[first::cycle], cycle * period_s) / cycle
        for cycle in (1, 2)
        for first in range(cycle)
    )


def _in_step_w(time_s: Column, power_w: Column, period_s: float) -> float:
    """For a load that repeats with each sample: late ones differ from their neighbours' mean as its waves do.

    Waves are fitted by least squares, samples and waves both less the mean around them.
    """
    compared = np.abs(time_s[2 * REACH :] - time_s[: -2 * REACH] - 2 * REACH * period_s) < SPAN_SLACK_S
    if (num := int(compared.sum())) < MIN_COMPARED:
        return 0.0
    frequency_hz = (_TURNS / period_s + _BESIDE_HZ).ravel()
    rows = np.vstack((power_w, np.exp(2j * np.pi * np.outer(frequency_hz, time_s - time_s[0]))))
    around = np.lib.stride_tricks.sliding_window_view(rows, 2 * REACH + 1, axis=1)
    off = (rows[:, REACH:-REACH] - around.mean(axis=2))[:, compared]
    off_w, columns = off[0].real, np.stack((off[1:].real, off[1:].imag), axis=2)
    by_wave, weight_w, _ = _fitted(off_w, columns)
    for half in np.array_split(np.arange(num), 2):
        by_wave = np.where(_fitted(off_w[half], columns[:, half])[2] >= EVIDENCE_OF_HALF, by_wave, 0.0)
    best = int(np.argmax(by_wave))
    evidence, shift_w = float(by_wave[best]), SHAPE_TIMES * float(np.hypot(*weight_w[best]))
    if evidence < EVIDENCE or shift_w < FLAGGED_FRACTION * float(power_w.mean()):
        return 0.0
    return shift_w * (1 + AMPLITUDE_SIGMAS / math.sqrt(evidence))


def _fitted(off_w: Column, columns: Column) -> tuple[Column, Column, Column]:
    """Fisher's F of each wave, the weights of its two columns, and F by each sample's own residual.

    A jump of the load at a late sample does not raise the last (HC3, MacKinnon and White, J. Econometrics 29, 1985).
    """
    products = columns.transpose(0, 2, 1) @ columns + RIDGE * len(off_w) * np.eye(2)
    inverse = np.linalg.inv(products)
    weight_w = inverse @ (off_w @ columns)[:, :, None]
    left_w = off_w[:, None] - columns @ weight_w
    own = columns * left_w / (1 - ((columns @ inverse) * columns).sum(axis=2, keepdims=True))
    by_own = products @ np.linalg.inv(own.transpose(0, 2, 1) @ own + 1e-9 * np.eye(2)) @ products
    by_all = products / np.maximum((left_w**2).sum(axis=1, keepdims=True) / (len(off_w) - 2), 1e-9)
    evidence, evidence_by_own = weight_w.transpose(0, 2, 1) @ np.stack((by_all, by_own)) @ weight_w / 2
    return evidence[:, 0, 0], weight_w[:, :, 0], evidence_by_own[:, 0, 0]
