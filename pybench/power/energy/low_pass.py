"""Undo the low-pass through which the driver's series sees the load.

A sample ``y`` answers the load like a first-order low-pass of time constant ``tau``. Over the cell between two samples
``d`` apart, ``(y1 - y0·exp(-d/tau)) / (1 - exp(-d/tau))`` is exactly the mean of the load weighted by
``exp(-(time to the cell's end)/tau)``: the load itself where that was steady. A step inside a cell, between steady
neighbours, follows from the weight in closed form (subcell resolution, after Harten, J. Comput. Phys. 83, 1989).
Nothing is inverted over more than one cell, so noise grows by ``sqrt(1 + e²) / (1 - e)``, e = exp(-d/tau), and no more.
The extension goes over the cells: ``csrc/low_pass.h``.

The time constant is the board's, by its sensor model: one fitted to a trace is wrong where the load's edges keep one
phase to the samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pybench import _energy
from pybench.core.statistics.spread import SD_OF_MAD
from pybench.power.energy.curve import GAP_S, Curve
from pybench.power.energy.repeats import MOST_REPEAT, Repeats
from pybench.power.energy.times import Column, middle

# The steps in which the driver reports power.
POWER_STEP_W = 0.323
POWER_STEP_SIGMA_W = POWER_STEP_W / 12**0.5
# White noise of one sample beside its neighbours, at most: 2.4 % on H200. What is beyond is the load's.
MOST_NOISE_FRACTION = 0.03
USUAL_NOISE_FRACTION = 0.024
# Deviation of a sample from the mean of its two neighbours, in standard deviations of one.
NEIGHBOUR_SIGMAS = 1.5**0.5
MIN_NOISY = 6


@dataclass(frozen=True)
class LowPass:
    """Time constant of the sensor and how well it is known."""

    tau_s: float
    sigma_s: float


def sample_noise_w(power_w: Column) -> Column:
    """Standard deviation of each sample's own noise, in W: the middle deviation from the neighbours' mean."""
    return np.asarray(np.hypot(POWER_STEP_SIGMA_W, _noise_fraction(power_w) * power_w))


def _noise_fraction(power_w: Column) -> float:
    if len(power_w) < MIN_NOISY:
        return 0.0
    return min(SD_OF_MAD * _energy.middle_deviation(power_w) / NEIGHBOUR_SIGMAS, MOST_NOISE_FRACTION)


def noise_w(power_w: Column) -> float:
    """What samples may deviate by noise alone, in W: no more than is usual, nor than neighbours differ."""
    if not len(power_w):
        return 0.0
    usual_w = math.hypot(POWER_STEP_SIGMA_W, USUAL_NOISE_FRACTION * float(power_w.mean()))
    return min(usual_w, middle(sample_noise_w(power_w)))


def undo(time_s: Column, power_w: Column, low_pass: LowPass, most_repeat: int = MOST_REPEAT) -> Curve:
    """The load's energy from samples of the series, by one step in each cell that lies between two others' powers.

    Loads that repeat after up to ``most_repeat`` samples are looked for.
    """
    period_s, tau_s = middle(np.diff(time_s)), low_pass.tau_s
    pieces, blind_s = _energy.undone(
        time_s, power_w, sample_noise_w(power_w), tau_s=tau_s, period_s=period_s, gap_s=GAP_S
    )
    ends_s, piece_j, sigma_j, seen_w, missed_j, sampled_j2, counted_j2, unresolved_j, unsteady_j = pieces
    may_repeat = bool(missed_j.any() or unsteady_j.any())
    repeats = Repeats.of(time_s, power_w, period_s, most_repeat) if may_repeat else Repeats(0.0, 0.0)
    curve = Curve.of_pieces(
        np.concatenate((time_s[:1], ends_s)),
        piece_j,
        sigma_j,
        # Where steps leave no trace in their cell, a load in tune with the samples puts all at the same wrong place.
        shift_s=float(np.hypot(low_pass.sigma_s, blind_s / np.sqrt(12))),
        sampled_j2=sampled_j2,
        counted_j2=counted_j2,
        coherent_j=repeats.in_step * missed_j,
        unresolved_j=repeats.in_step * unresolved_j,
        repeated_j2=repeats.shared_fraction * sigma_j**2,
        in_step_j=repeats.in_step * (missed_j + unsteady_j),
    )
    return replace(curve, seen_w=np.concatenate((np.repeat(power_w[0], 2), seen_w, power_w[-1:])), tau_s=tau_s)
