"""Undo the low-pass through which the driver's series sees the load.

A sample ``y`` answers the load like a first-order low-pass of time constant ``tau``. Over the cell between two samples
``d`` apart, ``(y1 - y0·exp(-d/tau)) / (1 - exp(-d/tau))`` is exactly the mean of the load weighted by
``exp(-(time to the cell's end)/tau)``: the load itself where that was steady. A step inside a cell, between steady
neighbours, follows from the weight in closed form (subcell resolution, after Harten, J. Comput. Phys. 83, 1989).
Nothing is inverted over more than one cell, so noise grows by ``sqrt(1 + e²) / (1 - e)``, e = exp(-d/tau), and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pybench.compute.energy.curve import Curve
from pybench.compute.energy.times import Column

# H200, driver 580: time constant, and the steps in which the driver tells power.
TAU_S = 10.9e-3
POWER_STEP_W = 0.323
TAU_SPREAD_S = 1.5e-3
OTHER_BELIEF = 0.03
# Below 3 ms nothing is left of a step by the next sample, and a sensor without any low-pass looks the same.
TAUS_S = np.concatenate(([0.0], np.arange(3.4e-3, 25e-3, 0.5e-3)))
# A change this many times the noise is no jump.
SMOOTH_NOISES = 20.0
# What is not resolved: part of the jump times the cell for cells between unsteady neighbours, and a moment for every
# jump. The counter rescales all of it together.
UNSTEADY = 0.5
MOMENT_S = 0.5e-3
NOISE_MARGIN = 3.0


@dataclass(frozen=True)
class LowPass:
    """Time constant of the sensor and how well it is known."""

    tau_s: float
    sigma_s: float


@dataclass(frozen=True)
class _Cells:
    """One value a cell. ``load_w`` is the weighted mean of the load, ``noise_w`` its standard deviation."""

    length_s: Column
    decay: Column
    load_w: Column
    noise_w: Column


def _cells(time_s: Column, power_w: Column, tau_s: float) -> _Cells:
    length_s = np.diff(time_s)
    decay = np.exp(-length_s / tau_s) if tau_s > 0 else np.zeros_like(length_s)
    load_w = np.maximum((power_w[1:] - power_w[:-1] * decay) / (1 - decay), 0.0)
    noise_w = POWER_STEP_W / np.sqrt(12) * np.sqrt(1 + decay**2) / (1 - decay)
    return _Cells(length_s, decay, load_w, noise_w)


def fit_low_pass(time_s: Column, power_w: Column) -> LowPass:
    """The time constant that gathers change into the fewest jumps, near the one measured unless data object.

    A wrong one gives every jump a false second jump. Loads that are steady, or change faster than the samples tell,
    say nothing.
    """
    doubt = np.array([_roughness(time_s, power_w, tau_s) for tau_s in TAUS_S])
    return _weighted(np.exp(doubt.min() - doubt))


def _weighted(likelihood: Column) -> LowPass:
    # Most boards are like the one measured; a board unlike it must still be found.
    weight = likelihood * (np.exp(-0.5 * ((TAUS_S - TAU_S) / TAU_SPREAD_S) ** 2) + OTHER_BELIEF)
    weight /= weight.sum()
    mean_s = float(weight @ TAUS_S)
    return LowPass(mean_s, float(np.sqrt(weight @ (TAUS_S - mean_s) ** 2)))


# As well as it is known where the samples tell nothing of it.
UNTOLD = _weighted(np.ones_like(TAUS_S))


def _roughness(time_s: Column, power_w: Column, tau_s: float) -> float:
    """Sum over all jumps of the logarithm of their size, in units of noise: few jumps weigh less than many small ones.

    Undoing a longer time constant makes jumps and noise larger alike, so neither is favoured for it.
    """
    cells = _cells(time_s, power_w, tau_s)
    return float(np.sum(np.log1p(np.abs(np.diff(cells.load_w)) / (SMOOTH_NOISES * cells.noise_w[1:]))))


def undo(time_s: Column, power_w: Column, low_pass: LowPass) -> Curve:
    """The load's energy from samples of the series, by one step in each cell that lies between two others' powers."""
    cells = _cells(time_s, power_w, low_pass.tau_s)
    load_w, length_s = cells.load_w, cells.length_s
    before_w, after_w = np.concatenate((load_w[:1], load_w[:-1])), np.concatenate((load_w[1:], load_w[-1:]))
    rise_w, next_w = load_w - before_w, after_w - load_w
    near_w = np.minimum(np.abs(rise_w), np.abs(next_w))
    jump_w = np.maximum(np.abs(rise_w), np.abs(next_w))
    stepped = (rise_w * next_w > 0) & (near_w > NOISE_MARGIN * cells.noise_w)

    part = np.divide(rise_w, after_w - before_w, out=np.zeros_like(rise_w), where=stepped)
    back_s = np.minimum(-low_pass.tau_s * np.log1p(-part * (1 - cells.decay)), length_s * (1 - 1e-9))
    early_j = np.where(stepped, before_w, load_w) * (length_s - back_s)
    late_j = after_w * back_s
    # A step so early in its cell that its weight has drowned in noise: somewhere in that blind time.
    alone_w = np.where(stepped | np.concatenate(([False], stepped[:-1])), 0.0, rise_w)
    blind_s = _blind_s(alone_w, cells, low_pass.tau_s)
    early_j = early_j - alone_w * blind_s / 2

    near_steady_w = np.concatenate((near_w[:1], near_w[:-1])) + np.concatenate((near_w[1:], near_w[-1:]))
    unsteady_w = np.where(stepped, np.minimum(near_steady_w, jump_w), np.sqrt(near_w * jump_w))
    # The first and the last cell lack a neighbour that would tell.
    unsteady_w[[0, -1]] = jump_w[[0, -1]]
    sigma_j = np.sqrt(
        (UNSTEADY * unsteady_w * length_s) ** 2
        + (2 * cells.noise_w * length_s) ** 2
        + (MOMENT_S * jump_w) ** 2
        + (alone_w * blind_s) ** 2 / 12
    )
    # Where steps leave no trace in their cell, a load in tune with the samples puts them all at the same wrong place.
    mean_blind_s = np.abs(alone_w) @ blind_s / max(float(np.sum(np.abs(rise_w))), 1e-9)
    shift_s = float(np.hypot(low_pass.sigma_s, mean_blind_s / np.sqrt(12)))
    return _curve(time_s, back_s, early_j, late_j, sigma_j, shift_s)


def _blind_s(alone_w: Column, cells: _Cells, tau_s: float) -> Column:
    """How long after a cell's start a jump of this size leaves no mark on the cell's mean."""
    margin_w = NOISE_MARGIN * cells.noise_w
    seen_s = tau_s * np.log(np.maximum(np.abs(alone_w) / margin_w, 1.0))
    return np.where(np.abs(alone_w) > margin_w, np.maximum(cells.length_s - seen_s, 0.0), 0.0)


def _curve(time_s: Column, back_s: Column, early_j: Column, late_j: Column, sigma_j: Column, shift_s: float) -> Curve:
    """Two pieces a cell, before and after its step; a cell without one has a second piece of no length."""
    step_s = time_s[1:] - back_s
    inner = back_s > 0
    knots_s = np.concatenate((time_s[:1], np.column_stack((step_s, time_s[1:])).ravel()))
    length_s = np.diff(time_s)
    pieces_j = np.column_stack((early_j, late_j)).ravel()
    share = np.column_stack((1 - back_s / length_s, back_s / length_s)).ravel()
    sigmas_j = np.repeat(sigma_j, 2) * np.sqrt(np.maximum(share, 0.0))
    keep = np.column_stack((np.ones_like(inner), inner)).ravel()
    # A cell without a step ends where its first piece does.
    return Curve.of_pieces(np.concatenate((knots_s[:1], knots_s[1:][keep])), pieces_j[keep], sigmas_j[keep], shift_s)
