"""Undo the low-pass through which the driver's series sees the load.

A sample ``y`` answers the load like a first-order low-pass of time constant ``tau``. Over the cell between two samples
``d`` apart, ``(y1 - y0·exp(-d/tau)) / (1 - exp(-d/tau))`` is exactly the mean of the load weighted by
``exp(-(time to the cell's end)/tau)``: the load itself where that was steady. A step inside a cell, between steady
neighbours, follows from the weight in closed form (subcell resolution, after Harten, J. Comput. Phys. 83, 1989).
Nothing is inverted over more than one cell, so noise grows by ``sqrt(1 + e²) / (1 - e)``, e = exp(-d/tau), and no more.

The time constant is the board's, by its sensor model: one fitted to a trace is wrong where the load's edges keep one
phase to the samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.curve import GAP_S, Curve
from pybench.compute.energy.times import Column, middle

# The steps in which the driver reports power.
POWER_STEP_W = 0.323
# White noise of one sample beside its neighbours, at most: 2.4 % on H200. What is beyond is the load's.
MOST_NOISE_FRACTION = 0.03
USUAL_NOISE_FRACTION = 0.024
# Median of absolute values to standard deviation, and the deviation of a sample from the mean of its two neighbours.
MAD_SIGMAS = 1.4826
NEIGHBOUR_SIGMAS = 1.5**0.5
# What is not resolved: part of the jump times the cell for cells between unsteady neighbours, and a moment for every
# jump. The counter rescales all of it together.
UNSTEADY = 0.4
MOMENT_S = 0.5e-3
NOISE_MARGIN = 3.0
# A sum of samples 20 ms apart behind 10.9 ms is off by this at a jump of 1 W at a random phase, 1.4 ms of it; other
# low-passes alike, by the part of a cell that they do not bridge.
SAMPLED_FRACTION = 0.07
# Peaks within one cell at random phases differ in height by half of it, standard deviation over mean; peaks that keep
# one phase to the samples are alike, and then all are wrong the same way.
RANDOM_SPREAD = 0.25
MIN_PEAKS = 6
PEAK_FRACTION = 0.15
UNRESOLVED = 0.9
# Loads in step with the samples repeat after this many of them, in long windows also after more; autocorrelation that
# chance or noise leaves.
LEAST_REPEAT, MOST_REPEAT = 2, 60
MIN_REPEATED = 20
CHANCE_REPEAT, SURE_REPEAT = 0.5, 0.9


@dataclass(frozen=True)
class LowPass:
    """Time constant of the sensor and how well it is known."""

    tau_s: float
    sigma_s: float


@dataclass(frozen=True)
class _Cells:
    """One value a cell. ``load_w`` is the weighted mean of the load, ``noise_w`` its standard deviation.

    A sample's noise counts in its own cell and, with the other sign, in the next: over a sum of cells it is no more
    than ``sum_noise_w`` of each, the sample's own. ``counted_noise_w`` is how far the mean power of a cell is from
    what one sample shows of it, where the noise is the load's own and not the sensor's.
    """

    length_s: Column
    decay: Column
    load_w: Column
    noise_w: Column
    sum_noise_w: Column
    counted_noise_w: Column


def sample_noise_w(power_w: Column) -> Column:
    """Standard deviation of each sample's own noise, in W: the middle deviation from the neighbours' mean."""
    step_w = np.full(len(power_w), POWER_STEP_W / np.sqrt(12))
    if len(power_w) < MIN_PEAKS:
        return step_w
    off = np.abs(power_w[1:-1] - (power_w[:-2] + power_w[2:]) / 2) / np.maximum(power_w[1:-1], 1.0)
    fraction = min(MAD_SIGMAS * middle(off) / NEIGHBOUR_SIGMAS, MOST_NOISE_FRACTION)
    return np.asarray(np.hypot(step_w, fraction * power_w))


def most_noise_w(power_w: Column) -> float:
    """What samples may deviate by noise alone, in W."""
    mean_w = float(np.mean(power_w)) if len(power_w) else 0.0
    return float(np.hypot(POWER_STEP_W / np.sqrt(12), USUAL_NOISE_FRACTION * mean_w))


def _cells(time_s: Column, power_w: Column, tau_s: float) -> _Cells:
    length_s = np.diff(time_s)
    decay = np.exp(-length_s / tau_s) if tau_s > 0 else np.zeros_like(length_s)
    load_w = np.maximum((power_w[1:] - power_w[:-1] * decay) / (1 - decay), 0.0)
    # Long after its beginning a cell's last sample shows nothing of it.
    load_w = np.where(length_s > GAP_S, (power_w[1:] + power_w[:-1]) / 2, load_w)
    sum_noise_w = sample_noise_w(power_w)[1:]
    noise_w = sum_noise_w * np.sqrt(1 + decay**2) / (1 - decay)
    # White noise behind the low-pass, seen through a weight of exp(-t/tau), less its plain mean over the cell.
    counted_noise_w = sum_noise_w * np.sqrt(np.maximum((1 + decay) / (1 - decay) - 2 * tau_s / length_s, 0.0))
    return _Cells(length_s, decay, load_w, noise_w, sum_noise_w, counted_noise_w)


def undo(time_s: Column, power_w: Column, low_pass: LowPass, most_repeat: int = MOST_REPEAT) -> Curve:
    """The load's energy from samples of the series, by one step in each cell that lies between two others' powers.

    Loads that repeat after up to ``most_repeat`` samples are looked for.
    """
    cells = _cells(time_s, power_w, low_pass.tau_s)
    load_w, length_s = cells.load_w, cells.length_s
    before_w, after_w = np.concatenate((load_w[:1], load_w[:-1])), np.concatenate((load_w[1:], load_w[-1:]))
    rise_w, next_w = load_w - before_w, after_w - load_w
    near_w = np.minimum(np.abs(rise_w), np.abs(next_w))
    jump_w = np.maximum(np.abs(rise_w), np.abs(next_w))
    margin_w = NOISE_MARGIN * cells.noise_w
    stepped = (rise_w * next_w > 0) & (near_w > margin_w)

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
    # The first and the last cell lack a neighbour that would show a step.
    unsteady_w[[0, -1]] = jump_w[[0, -1]]
    # What is within the noise is no unsteadiness: noise has its own term.
    unsteady_w = np.where(unsteady_w > margin_w, unsteady_w, 0.0)
    edge_w = np.where(jump_w > margin_w, jump_w, 0.0)
    sigma_j = np.sqrt(
        (UNSTEADY * unsteady_w * length_s) ** 2
        + (cells.sum_noise_w * length_s) ** 2
        + (MOMENT_S * edge_w) ** 2
        + (alone_w * blind_s) ** 2 / 12
        + (np.where(length_s > GAP_S, length_s, 0.0) * float(np.max(power_w)) / 2) ** 2
    )
    # Where steps leave no trace in their cell, a load in tune with the samples puts them all at the same wrong place.
    mean_blind_s = np.abs(alone_w) @ blind_s / max(float(np.sum(np.abs(rise_w))), 1e-9)
    shift_s = float(np.hypot(low_pass.sigma_s, mean_blind_s / np.sqrt(12)))
    own_edge_w = np.where(np.abs(rise_w) > margin_w, np.abs(rise_w), 0.0)
    period_s = middle(length_s)
    missed_j = SAMPLED_FRACTION * period_s * own_edge_w
    unresolved_j = UNRESOLVED * _likeness(rise_w, next_w, near_w, margin_w, load_w) * unsteady_w * length_s
    may_repeat = bool(np.any(missed_j) or np.any(unsteady_w))
    in_step = _in_step(time_s, power_w, period_s, most_repeat) if may_repeat else 0.0
    coherent_j = in_step * missed_j
    sums = {
        "sampled_j2": missed_j**2,
        "counted_j2": (cells.counted_noise_w * length_s) ** 2,
        "coherent_j": coherent_j,
        "unresolved_j": unresolved_j,
        "in_step_j": coherent_j + in_step * UNSTEADY * unsteady_w * length_s,
    }
    curve = _curve(time_s, back_s, early_j, late_j, sigma_j, shift_s, sums)
    at_step_w = before_w + (power_w[:-1] - before_w) * np.exp(-(length_s - back_s) / max(low_pass.tau_s, 1e-9))
    return replace(curve, seen_w=_seen_w(power_w, at_step_w, back_s > 0), tau_s=low_pass.tau_s)


def _seen_w(power_w: Column, at_step_w: Column, inner: npt.NDArray[np.bool_]) -> Column:
    """The sensor's power at the curve's times, those of samples and of the steps between."""
    both_w = _in_turn(np.where(inner, at_step_w, power_w[1:]), power_w[1:])
    pieces = np.flatnonzero(_in_turn(np.ones_like(at_step_w), inner))
    return np.concatenate((np.repeat(power_w[0], 2), both_w[pieces], power_w[-1:]))


def _likeness(rise_w: Column, next_w: Column, near_w: Column, margin_w: Column, load_w: Column) -> float:
    """How alike the peaks within one cell are: 1 where all have one height, 0 where they come at any phase."""
    least_w = np.maximum(margin_w, PEAK_FRACTION * float(np.ptp(load_w)))
    heights_w = near_w[(rise_w * next_w < 0) & (near_w > least_w)]
    if len(heights_w) < MIN_PEAKS:
        return 0.0
    return max(0.0, 1 - float(np.std(heights_w) / np.mean(heights_w)) / RANDOM_SPREAD)


def _in_step(time_s: Column, power_w: Column, period_s: float, most_repeat: int) -> float:
    """How well the samples repeat after some number of them: 1 for a load that keeps step with them.

    From their autocorrelation, at twice that number too, since one repetition may be chance.
    """
    number = np.rint((time_s - time_s[0]) / period_s).astype(np.intp)
    length = 1 << (int(number[-1]) + 2 * most_repeat).bit_length()
    both = np.zeros((2, length))
    both[0, number], both[1, number] = power_w - power_w.mean(), 1.0
    alike, pairs = np.fft.irfft(np.abs(np.fft.rfft(both)) ** 2)
    repeats = alike[: 2 * most_repeat + 1] / np.maximum(pairs[: 2 * most_repeat + 1], 1.0)
    after = np.arange(LEAST_REPEAT, most_repeat + 1)
    enough = pairs[2 * after] >= MIN_REPEATED
    if not np.any(enough) or repeats[0] <= 0:
        return 0.0
    best = float(np.max(np.minimum(repeats[after], repeats[2 * after])[enough])) / float(repeats[0])
    return float(np.clip((best - CHANCE_REPEAT) / (SURE_REPEAT - CHANCE_REPEAT), 0.0, 1.0))


def _blind_s(alone_w: Column, cells: _Cells, tau_s: float) -> Column:
    """How long after a cell's start a jump of this size leaves no mark on the cell's mean."""
    margin_w = NOISE_MARGIN * cells.noise_w
    seen_s = tau_s * np.log(np.maximum(np.abs(alone_w) / margin_w, 1.0))
    return np.where(np.abs(alone_w) > margin_w, np.maximum(cells.length_s - seen_s, 0.0), 0.0)


def _curve(
    time_s: Column,
    back_s: Column,
    early_j: Column,
    late_j: Column,
    sigma_j: Column,
    shift_s: float,
    sums: dict[str, npt.NDArray[np.float64]],
) -> Curve:
    """Two pieces a cell, before and after its step; a cell without one has a second piece of no length."""
    inner = back_s > 0
    # A cell without a step ends where its first piece does.
    pieces = np.flatnonzero(_in_turn(np.ones_like(back_s), inner))
    ends_s = np.concatenate((time_s[:1], _in_turn(time_s[1:] - back_s, time_s[1:])[pieces]))
    late = back_s / np.diff(time_s)
    share = np.maximum(_in_turn(1 - late, late)[pieces], 0.0)
    cell = pieces // 2
    split = np.array(list(sums.values()))[:, cell] * share
    pieces_j, pieces_sigma_j = _in_turn(early_j, late_j)[pieces], sigma_j[cell] * np.sqrt(share)
    return Curve.of_pieces(ends_s, pieces_j, pieces_sigma_j, shift_s, **dict(zip(sums, split, strict=True)))


def _in_turn(early: Column, late: npt.NDArray[np.float64 | np.bool_]) -> Column:
    """Values of a cell's two pieces, cell after cell."""
    both = np.empty(2 * len(early))
    both[::2], both[1::2] = early, late
    return both
