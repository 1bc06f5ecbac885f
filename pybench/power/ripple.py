"""A fast periodic load behind slow samples, by folding them.

Samples 20 ms apart can't show the shape of a load that repeats within 60 ms. But samples of many periods, each at
another phase, show it together (equivalent-time sampling). A fundamental and its harmonics are fitted by least squares
(Lomb, Astrophys. Space Sci. 39, 1976) and tuned by Gauss-Newton steps; the sensor's low-pass is divided out of each. A
fit is used only if it predicts held-out samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pybench.power.samples import Column

Complex = npt.NDArray[np.complex128]

# Samples needed for a fold.
MIN_SAMPLES = 60
# A ripple extends this far in s beyond the folded samples.
EXTENSION_S = 0.05
# Frequencies looked at, in Hz. The sensor's low-pass leaves little of faster loads.
SLOWEST_HZ, FASTEST_HZ = 2.0, 104.0
# Slowest ripple in Hz: the samples themselves resolve slower loads.
RIPPLE_HZ = 17.0
# Harmonics up to this frequency are fitted, at most five. With three, p95 bounds of decode rounds grew threefold.
HIGHEST_HARMONIC_HZ = 260.0
MOST_HARMONICS = 5
# Steps of the spectrum per frequency resolution (1 / span), width of its time bins in s, and peaks that are tuned.
STEPS_PER_RESOLUTION = 5
BIN_S = 2e-3
NUM_PEAKS = 8
# Gauss-Newton steps of a frequency, and the ridge of the least squares as a fraction of each diagonal entry.
NUM_STEPS = 3
RIDGE = 1e-6
# Variance that one wave must explain, as a fraction, before anything is fitted.
EXPLAINED_FRACTION = 0.4
# A fit is used if its residual on held-out samples is below a fifth of their standard deviation, or below 1.5 times
# the noise.
RESIDUAL_FRACTION = 0.2
NOISE_TIMES = 1.5
# The load begins or ends within the samples if the residual of one of the five outer ones is 3.5 times the usual.
NUM_OUTER = 5
OUTER_TIMES = 3.5
# Harmonics whose aliases are considered.
HIGHEST_ALIAS = 12
# Harmonics that drift by less than this many turns past the samples are in step with them.
IN_STEP_TURNS = 1.2


@dataclass(frozen=True)
class Ripple:
    """Power that swings around 0 W from ``start_s`` to ``end_s``.

    Attributes:
        seen_w: complex amplitude of each harmonic in the samples, behind the low-pass.
        tau_s: time constant of the low-pass.
    """

    start_s: float
    end_s: float
    frequency_hz: float
    seen_w: Complex
    tau_s: float = 0.0

    def settled(self, sample_period_s: float) -> Ripple:
        """The ripple without higher harmonics in step with the samples, which take them for a part of the mean."""
        _, _, in_step = self._aliases(sample_period_s)
        in_step[0] = False
        return replace(self, seen_w=np.where(in_step[: len(self.seen_w)], 0.0, self.seen_w))

    def power_seen_w(self, time_s: Column) -> Column:
        """Its contribution to samples at these times."""
        inside = (time_s >= self.start_s) & (time_s <= self.end_s)
        return np.where(inside, wave_sum(time_s, self.frequency_hz, self.seen_w), 0.0)

    def energy_j(self, time_s: Column) -> Column:
        """Joules since its start, constant beyond its ends."""
        amplitude_j = np.asarray(self.seen_w * self._gain / (1j * self._omega))
        inside_s = np.minimum(np.maximum(time_s, self.start_s), self.end_s)
        at_start_j = wave_sum(np.array([self.start_s]), self.frequency_hz, amplitude_j)
        return np.asarray(wave_sum(inside_s, self.frequency_hz, amplitude_j) - at_start_j)

    def in_step_w(self, sample_period_s: float) -> float:
        """Standard deviation of the mean power of a counter with this sampling period, by harmonics in step with it."""
        _, seen_w, in_step = self._aliases(sample_period_s)
        return float(np.linalg.norm(seen_w[in_step]) / np.sqrt(2))

    def drifting_j2(self, sample_period_s: float) -> float:
        """Variance of the values of a counter with this sampling period, by harmonics that drift past its samples.

        The counter sees such a harmonic as a wave of the difference frequency.
        """
        apart_hz, seen_w, in_step = self._aliases(sample_period_s)
        return float(np.sum((seen_w[~in_step] / (2 * np.pi * apart_hz[~in_step])) ** 2) / 2)

    def _aliases(self, sample_period_s: float) -> tuple[Column, Column, npt.NDArray[np.bool_]]:
        """Each harmonic's distance from a multiple of the sampling, its amplitude in samples, and if it is in step.

        Harmonic k of a load that switches has about 1/k of the first one's amplitude.
        """
        order = np.arange(1, HIGHEST_ALIAS + 1)
        apart_hz = np.abs((order * self.frequency_hz * sample_period_s + 0.5) % 1 - 0.5) / sample_period_s
        load_w = np.abs(self.seen_w[0] * self._gain[0])
        seen_w = load_w / order / np.hypot(1, 2 * np.pi * self.frequency_hz * order * self.tau_s)
        return apart_hz, seen_w, apart_hz * (self.end_s - self.start_s) < IN_STEP_TURNS

    @cached_property
    def _omega(self) -> Column:
        return np.asarray(2 * np.pi * self.frequency_hz * np.arange(1, len(self.seen_w) + 1))

    @cached_property
    def _gain(self) -> Complex:
        """The load's amplitude over the samples', by harmonic."""
        return np.asarray(1 + 1j * self._omega * self.tau_s)


def wave_sum(time_s: Column, frequency_hz: float, amplitude: Complex) -> Column:
    """The sum of all harmonics at each time: real parts of ``amplitude * exp(i·phase)``."""
    turn = np.exp(2j * np.pi * np.remainder(frequency_hz * time_s, 1.0))
    total = np.zeros_like(turn)
    for harmonic in amplitude[::-1]:
        total = (total + harmonic) * turn
    return np.asarray(total.real)


def find_ripple(time_s: Column, power_w: Column, noise_w: float) -> Ripple | None:
    """The ripple in samples with this standard deviation of noise; ``None`` if there is none."""
    if len(time_s) < MIN_SAMPLES:
        return None
    usual_w = max(NOISE_TIMES * noise_w, RESIDUAL_FRACTION * float(power_w.std()))
    middle_s = float(time_s.mean())
    since_s = time_s - middle_s
    fits = [tuned(since_s, power_w, hz) for hz in _peaks_hz(since_s, power_w).tolist()]
    if not fits:
        return None
    best = min(fits, key=lambda fit: fit.left_w)
    # Evenly spaced samples show a slow load at the alias; the late ones decide.
    sampled_hz = 1 / float(np.median(np.diff(time_s)))
    folded_hz = abs(best.frequency_hz - round(best.frequency_hz / sampled_hz) * sampled_hz)
    alias_hz = max(folded_hz, 1 / float(time_s[-1] - time_s[0]))
    if best.frequency_hz >= RIPPLE_HZ > alias_hz:
        best = min(best, tuned(since_s, power_w, alias_hz), key=lambda fit: fit.left_w)
    # Samples at few phases fit waves of any height.
    too_high = abs(best.seen_w[0]) > np.ptp(power_w)
    if best.frequency_hz < RIPPLE_HZ or best.left_w > usual_w or too_high:
        return None
    phase = 2 * np.pi * best.frequency_hz * np.arange(1, len(best.seen_w) + 1) * middle_s
    start_s, end_s = float(time_s[0]) - EXTENSION_S, float(time_s[-1]) + EXTENSION_S
    seen_w = best.seen_w * np.exp(-1j * phase)
    ripple = Ripple(start_s, end_s, best.frequency_hz, seen_w)
    off_w = power_w - ripple.power_seen_w(time_s)
    off_w = np.abs(off_w - np.median(off_w))
    if max(off_w[:NUM_OUTER].max(), off_w[-NUM_OUTER:].max()) > OUTER_TIMES * usual_w:
        return None  # the load begins or ends within the samples
    return ripple


def _peaks_hz(time_s: Column, power_w: Column) -> Column:
    """Frequencies of the highest peaks of the spectrum, highest first; none if no wave explains much."""
    num = int(STEPS_PER_RESOLUTION * float(time_s[-1] - time_s[0]) / BIN_S) + 1
    length = 1 << (num - 1).bit_length()
    swing_w = power_w - power_w.mean()
    place = np.rint((time_s - time_s[0]) / BIN_S).astype(np.intp)
    bins_w = np.bincount(place, weights=swing_w, minlength=length)
    step_hz = 1 / (length * BIN_S)
    height = np.abs(np.fft.rfft(bins_w)[: int(FASTEST_HZ / step_hz) + 1]) ** 2
    height /= max(len(time_s) * float(swing_w @ swing_w) / 2, 1e-12)
    tops = np.flatnonzero((height[1:-1] >= height[:-2]) & (height[1:-1] > height[2:])) + 1
    tops = tops[tops >= math.ceil(SLOWEST_HZ / step_hz)]
    tops = tops[np.argsort(-height[tops], kind="stable")[:NUM_PEAKS]]
    if not len(tops) or height[tops[0]] < EXPLAINED_FRACTION:
        return np.array([])
    before, top, after = height[tops - 1], height[tops], height[tops + 1]
    vertex = (before - after) / np.minimum(2 * (before - 2 * top + after), -1e-12)
    return np.asarray((tops + np.clip(vertex, -0.5, 0.5)) * step_hz)


@dataclass(frozen=True)
class Fit:
    """Amplitudes ``seen_w`` of the harmonics, and the residual ``left_w`` on held-out samples."""

    frequency_hz: float
    seen_w: Complex
    left_w: float


def tuned(time_s: Column, power_w: Column, frequency_hz: float) -> Fit:
    """The fit at the frequency nearby at which all harmonics together fit best.

    The residual is of two halves, pairs of samples in turn, each predicted from the other.
    """
    num = int(min(max(HIGHEST_HARMONIC_HZ // frequency_hz, 1), MOST_HARMONICS))
    farthest_hz = 1 / (STEPS_PER_RESOLUTION * float(time_s[-1] - time_s[0]))
    turns = 2 * np.pi * np.arange(1, num + 1)
    for _ in range(NUM_STEPS):
        columns = _columns(time_s, frequency_hz, num)
        weight_w = _least_squares(columns, power_w)
        turned_w = np.concatenate((turns * weight_w[num : 2 * num], -turns * weight_w[:num]))
        slope = time_s * (columns[:, : 2 * num] @ turned_w)
        step_hz = float(_least_squares(np.column_stack((columns, slope)), power_w)[-1])
        frequency_hz += min(max(step_hz, -farthest_hz), farthest_hz)
    columns = _columns(time_s, frequency_hz, num)
    weight_w = _least_squares(columns, power_w)
    first = np.arange(len(time_s)) // 2 % 2 == 0
    off_w = np.empty(len(time_s))
    for half in (first, ~first):
        off_w[~half] = power_w[~half] - columns[~half] @ _least_squares(columns[half], power_w[half])
    return Fit(frequency_hz, weight_w[:num] - 1j * weight_w[num : 2 * num], float(np.sqrt(np.mean(off_w**2))))


def _columns(time_s: Column, frequency_hz: float, num: int) -> Column:
    """Cosines and sines of each harmonic, a constant and a drift."""
    phase = 2 * np.pi * frequency_hz * np.outer(time_s, np.arange(1, num + 1))
    drift = time_s / np.abs(time_s).max()
    return np.column_stack((np.cos(phase), np.sin(phase), np.ones_like(time_s), drift))


def _least_squares(columns: Column, values: Column) -> Column:
    """Weights of the columns by normal equations with a small ridge."""
    products = columns.T @ columns
    diagonal = np.einsum("ii->i", products)
    diagonal += RIDGE / len(values) * diagonal + (diagonal <= 0)
    return np.asarray(np.linalg.solve(products, columns.T @ values))
