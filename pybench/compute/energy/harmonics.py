"""A wave and its harmonics fitted to samples at uneven times.

Least squares at a frequency (Lomb, Astrophys. Space Sci. 39, 1976), which Gauss and Newton's steps tune. Several
frequencies are fitted at once, along the first axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.times import Column

HIGHEST_HARMONIC_HZ = 260.0
MOST_HARMONICS = 5
NUM_WAVES = 2 * MOST_HARMONICS
STEPS_PER_RESOLUTION = 5
NUM_STEPS = 3
RIDGE_FRACTION = 1e-6

Matrix = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]


@dataclass(frozen=True)
class HarmonicFit:
    """``seen_w`` is each harmonic's complex amplitude, ``left_w`` the deviation of samples from a fit to the others."""

    frequency_hz: float
    seen_w: npt.NDArray[np.complex128]
    left_w: float


@dataclass(frozen=True)
class Waves:
    """The waves of some frequencies, each with harmonics, at the times of samples, and the weights that fit these best.

    ``rows`` are by frequency, and ``products`` are those of each two of them.
    """

    frequency_hz: Column
    num: Counts
    rows: Matrix
    products: Matrix
    weight: Matrix

    @classmethod
    def of(cls, time_s: Column, power_w: Column, frequency_hz: Column, num: Counts | None = None) -> Waves:
        """By least squares, with so many harmonics of each frequency, or else as many as matter."""
        num = _num_harmonics(frequency_hz) if num is None else num
        rows = _rows(time_s, frequency_hz, num)
        products = _products(rows)
        return cls(frequency_hz, num, rows, products, _solve(products, rows @ power_w))

    def keep(self, which: npt.NDArray[np.bool_]) -> Waves:
        """Only those of the frequencies that are marked."""
        return Waves(**{name: column[which] for name, column in vars(self).items()})

    def left_w(self, power_w: Column) -> Column:
        """The deviation of the samples from the fit at each frequency."""
        return np.asarray(np.std(power_w - _sum(self.weight, self.rows), axis=1))

    def tuned(self, time_s: Column, power_w: Column) -> Waves:
        """At the frequencies at which all harmonics together fit best, by Gauss and Newton's steps."""
        waves, farthest_hz = self, tuning_hz(time_s) / NUM_STEPS
        for _ in range(NUM_STEPS):
            step_hz = np.clip(waves._step_hz(time_s, power_w), -farthest_hz, farthest_hz)
            waves = Waves.of(time_s, power_w, waves.frequency_hz + step_hz, self.num)
        return waves

    def _step_hz(self, time_s: Column, power_w: Column) -> Column:
        order = 2 * np.pi * np.arange(1, MOST_HARMONICS + 1)
        turned = np.empty((len(self.weight), NUM_WAVES))
        turned[:, ::2], turned[:, 1::2] = order * self.weight[:, 1:NUM_WAVES:2], -order * self.weight[:, :NUM_WAVES:2]
        slope = time_s * _sum(turned, self.rows[:, :NUM_WAVES])
        return _slope_weight(self.rows, self.products, slope, power_w, self.weight)


def _num_harmonics(frequency_hz: Column) -> Counts:
    return np.asarray(np.clip(HIGHEST_HARMONIC_HZ // frequency_hz, 1, MOST_HARMONICS), dtype=np.intp)


def cosine_and_sine(turns: Matrix) -> tuple[Matrix, Matrix]:
    """Of angles in turns, by the tangent of their half: a third of the time, with AVX-512."""
    tangent = np.tan(np.pi * turns)
    part = 2 / (1 + tangent * tangent)
    return part - 1, part * tangent


def tuning_hz(time_s: Column) -> float:
    """The farthest that a frequency is tuned."""
    return NUM_STEPS / (STEPS_PER_RESOLUTION * float(np.ptp(time_s)))


def fits_near(time_s: Column, power_w: Column, untuned: Waves) -> list[HarmonicFit]:
    """A wave and its harmonics at each frequency, tuned."""
    waves = untuned.tuned(time_s, power_w)
    even = np.arange(len(time_s)) // 2 % 2 == 0
    halves = [(waves.rows.compress(half, axis=2), power_w[half]) for half in (even, ~even)]
    off_w = [
        other_w - _sum(_solve(_products(rows), rows @ half_w), other_rows)
        for (rows, half_w), (other_rows, other_w) in (halves, halves[::-1])
    ]
    left_w = np.sqrt(np.mean(np.concatenate(off_w, axis=1) ** 2, axis=1))
    fitted = zip(waves.frequency_hz, _amplitude(waves.weight), waves.num, left_w, strict=True)
    return [HarmonicFit(float(hz), seen_w[:num], float(left)) for hz, seen_w, num, left in fitted]


def _slope_weight(rows: Matrix, products: Matrix, slope: Matrix, power_w: Column, weight: Matrix) -> Column:
    """By how much of its slope, beside all rows, the samples are explained best: of the normal equations' last row."""
    with_rows = (rows @ slope[:, :, None])[:, :, 0]
    alone, ridge = np.einsum("kt,kt->k", slope, slope), RIDGE_FRACTION / slope.shape[1]
    beside = alone * (1 + ridge) - np.einsum("kr,kr->k", with_rows, _solve(products, with_rows))
    explained = slope @ power_w - np.einsum("kr,kr->k", with_rows, weight)
    return np.asarray(explained / np.maximum(beside, np.maximum(alone * ridge, 1e-12)))


def _rows(time_s: Column, frequency_hz: Column, num: Counts) -> Matrix:
    """By frequency: the cosine and the sine of each harmonic in turn, a constant, and a drift, at all times.

    Harmonics beyond ``num`` are 0.
    """
    rows = np.empty((NUM_WAVES + 2, len(frequency_hz), len(time_s)))
    waves = rows[:NUM_WAVES].reshape(MOST_HARMONICS, 2, *rows.shape[1:])
    waves[0] = cosine_and_sine(np.outer(frequency_hz, time_s))
    # Chebyshev's recurrence, from 1 and 0 before the first harmonic.
    twice = 2 * waves[0, 0]
    np.multiply(twice, waves[0], out=waves[1])
    waves[1, 0] -= 1.0
    for order in range(2, MOST_HARMONICS):
        np.multiply(twice, waves[order - 1], out=waves[order])
        waves[order] -= waves[order - 2]
    for order in range(int(num.min()), MOST_HARMONICS):
        waves[order] *= (num > order)[:, None]
    rows[-2], rows[-1] = 1.0, time_s / max(float(np.max(np.abs(time_s))), 1e-9)
    return rows.transpose(1, 0, 2)


def _sum(weight: Matrix, rows: Matrix) -> Matrix:
    """Of all rows, by their weights."""
    return np.asarray((weight[:, None] @ rows)[:, 0])


def _amplitude(weight: Matrix) -> npt.NDArray[np.complex128]:
    return np.asarray(weight[:, :NUM_WAVES:2] - 1j * weight[:, 1:NUM_WAVES:2])


def _products(rows: Matrix) -> Matrix:
    """Of each two rows, raised so that rows which the samples can't separate share what they explain."""
    products = rows @ rows.transpose(0, 2, 1)
    size = np.einsum("kii->ki", products)
    # A view: the diagonal itself is raised.
    size += RIDGE_FRACTION * size / rows.shape[2] + np.where(size > 0, 0.0, 1.0)
    return products


def _solve(products: Matrix, explained: Matrix) -> Matrix:
    return np.asarray(np.linalg.solve(products, explained[:, :, None])[:, :, 0])
