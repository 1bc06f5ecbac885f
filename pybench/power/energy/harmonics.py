"""A wave and its harmonics fitted to samples at uneven times.

Least squares at a frequency (Lomb, Astrophys. Space Sci. 39, 1976), which Gauss and Newton's steps tune. The extension
computes them: ``csrc/waves.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.energy.times import Column

HIGHEST_HARMONIC_HZ = 260.0
MOST_HARMONICS = 5
STEPS_PER_RESOLUTION = 5
NUM_STEPS = 3


@dataclass(frozen=True)
class HarmonicFit:
    """``seen_w`` is each harmonic's complex amplitude, ``left_w`` the deviation of samples from a fit to the others."""

    frequency_hz: float
    seen_w: npt.NDArray[np.complex128]
    left_w: float


class Fits:
    """Waves at several frequencies, each with as many harmonics as matter, fitted to the same samples."""

    def __init__(self, time_s: Column, power_w: Column, frequency_hz: Column) -> None:
        num = [int(min(max(HIGHEST_HARMONIC_HZ // hz, 1), MOST_HARMONICS)) for hz in frequency_hz.tolist()]
        self._fits = _energy.Fits(time_s, power_w, frequency_hz, num)
        self._farthest_hz = tuning_hz(time_s) / NUM_STEPS

    def left_w(self) -> Column:
        """The deviation of the samples from the fit at each frequency as it is."""
        return self._fits.left_w()

    def tuned(self, which: Sequence[int]) -> list[HarmonicFit]:
        """Of the frequencies of these numbers, each at the one near it at which all harmonics together fit best."""
        tuned = self._fits.tuned(which, num_steps=NUM_STEPS, farthest_hz=self._farthest_hz)
        return [HarmonicFit(*fit) for fit in tuned]


def tuning_hz(time_s: Column) -> float:
    """The farthest that a frequency is tuned."""
    return NUM_STEPS / (STEPS_PER_RESOLUTION * float(time_s[-1] - time_s[0]))


def wave_sum(time_s: Column, frequency_hz: float, amplitude: npt.NDArray[np.complex128]) -> Column:
    """The sum of all harmonics at each time, each the real part of ``amplitude * exp(i·phase)``."""
    return _energy.wave_sum(time_s, frequency_hz, amplitude.tolist())
