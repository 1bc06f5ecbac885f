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


def untuned_left_w(time_s: Column, power_w: Column, frequency_hz: Column) -> Column:
    """The deviation of the samples from a fit at each frequency as it is."""
    rows = _rows(time_s, frequency_hz, _num_harmonics(frequency_hz))
    return np.asarray(np.std(power_w - (_least_squares(rows, power_w)[:, None] @ rows)[:, 0], axis=1))


def _num_harmonics(frequency_hz: Column) -> Counts:
    return np.asarray(np.clip(HIGHEST_HARMONIC_HZ // frequency_hz, 1, MOST_HARMONICS), dtype=np.intp)


def tuning_hz(time_s: Column) -> float:
    """The farthest that a frequency is tuned."""
    return NUM_STEPS / (STEPS_PER_RESOLUTION * float(np.ptp(time_s)))


def fits_near(time_s: Column, power_w: Column, near_hz: Column) -> list[HarmonicFit]:
    """A wave and its harmonics at each frequency, tuned."""
    num = _num_harmonics(near_hz)
    frequency_hz = _tuned(time_s, power_w, near_hz, num)
    rows = _rows(time_s, frequency_hz, num)
    even = np.arange(len(time_s)) // 2 % 2 == 0
    off_w = []
    for one, other in ((even, ~even), (~even, even)):
        weight = _least_squares(rows[:, :, one], power_w[one])
        off_w.append(power_w[other] - (weight[:, None] @ rows[:, :, other])[:, 0])
    left_w = np.sqrt(np.mean(np.concatenate(off_w, axis=1) ** 2, axis=1))
    seen_w = _amplitude(_least_squares(rows, power_w))
    return [
        HarmonicFit(float(hz), seen[:harmonics], float(left))
        for hz, seen, harmonics, left in zip(frequency_hz, seen_w, num, left_w, strict=True)
    ]


def _tuned(time_s: Column, power_w: Column, frequency_hz: Column, num: Counts) -> Column:
    """The frequencies at which all harmonics together fit best, by Gauss and Newton's steps."""
    farthest_hz = tuning_hz(time_s) / NUM_STEPS
    order = np.arange(1, MOST_HARMONICS + 1)
    for _ in range(NUM_STEPS):
        rows = _rows(time_s, frequency_hz, num)
        products = _products(rows)
        weight = _solve(products, rows @ power_w)
        turned_w = _amplitude(weight) * 2j * np.pi * order
        waves = np.concatenate((turned_w.real, -turned_w.imag), axis=1)
        slope = time_s * (waves[:, None] @ rows[:, : 2 * MOST_HARMONICS])[:, 0]
        step_hz = _slope_weight(rows, products, slope, power_w, weight)
        frequency_hz = frequency_hz + np.clip(step_hz, -farthest_hz, farthest_hz)
    return frequency_hz


def _slope_weight(rows: Matrix, products: Matrix, slope: Matrix, power_w: Column, weight: Matrix) -> Column:
    """By how much of its slope, beside all rows, the samples are explained best: of the normal equations' last row."""
    with_rows = (rows @ slope[:, :, None])[:, :, 0]
    alone, ridge = np.einsum("kt,kt->k", slope, slope), RIDGE_FRACTION / slope.shape[1]
    beside = alone * (1 + ridge) - np.einsum("kr,kr->k", with_rows, _solve(products, with_rows))
    explained = slope @ power_w - np.einsum("kr,kr->k", with_rows, weight)
    return np.asarray(explained / np.maximum(beside, np.maximum(alone * ridge, 1e-12)))


def _rows(time_s: Column, frequency_hz: Column, num: Counts) -> Matrix:
    """By frequency: the cosine of each harmonic, the sine of each, a constant, and a drift, at all times.

    Harmonics beyond ``num`` are 0.
    """
    turn = np.exp(2j * np.pi * np.outer(frequency_hz, time_s))
    rows = np.empty((len(turn), 2 * MOST_HARMONICS + 2, len(time_s)))
    wave = (num > 0)[:, None] * turn
    for order in range(MOST_HARMONICS):
        rows[:, order], rows[:, MOST_HARMONICS + order] = wave.real, wave.imag
        wave = wave * turn * (num > order + 1)[:, None]
    rows[:, -2], rows[:, -1] = 1.0, time_s / max(float(np.max(np.abs(time_s))), 1e-9)
    return rows


def _amplitude(weight: Matrix) -> npt.NDArray[np.complex128]:
    return np.asarray(weight[:, :MOST_HARMONICS] - 1j * weight[:, MOST_HARMONICS : 2 * MOST_HARMONICS])


def _products(rows: Matrix) -> Matrix:
    """Of each two rows, raised so that rows which the samples can't separate share what they explain."""
    products = rows @ rows.transpose(0, 2, 1)
    size = np.einsum("kii->ki", products)
    # A view: the diagonal itself is raised.
    size += RIDGE_FRACTION * size / rows.shape[2] + np.where(size > 0, 0.0, 1.0)
    return products


def _solve(products: Matrix, explained: Matrix) -> Matrix:
    return np.asarray(np.linalg.solve(products, explained[:, :, None])[:, :, 0])


def _least_squares(rows: Matrix, power_w: Column) -> Matrix:
    """The weight of each row."""
    return _solve(_products(rows), rows @ power_w)
