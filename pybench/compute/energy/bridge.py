"""Counter sums joined with the series' shape.

The series gives the energy over time but for a gain near 1; the counter gives its sum at some moments, each misplaced
by some part of a millisecond. A Kalman filter over the counter's values (Kalman, J. Basic Eng. 82, 1960) follows four
quantities: what the counter should hold, the same less what the windows hold, the series' gain, and how far the
counter's own sampling goes wrong at jumps of a load that keeps step with it. Between two values the series' variance is
added, and the variance of what a counter that adds up samples misses at jumps of any phase. The difference of the first
two is the joules within the windows.

What moments counter values are of is not known: they lag their publication by a fixed time. Every lag and every grid
that the readings allow is tried, and weighted by how well the values then follow on each other, under one unknown
common scale of all variances (a multivariate Student t), so that a shape that does not follow the counter widens the
bound. Now and then a value lies far beside the grid: it is given that much doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.anchors import Anchors
from pybench.compute.energy.curve import Curve, Windows
from pybench.compute.energy.times import Column

LAG_STEP_S = 1e-3
# Counter and series agreed to 0.15 % over 3 s, to 0.11 % over 20 s.
GAIN_SPREAD = 1e-3
# How far in step with the counter's sampling a load is taken to be, as a standard deviation; 1 is wholly.
STEP_SPREAD = 0.6
# Weight of the expected scale against the data's, in values.
SCALE_FREEDOM = 4.0
DIGIT_J2 = 1e-6
# A value this many standard deviations off is misplaced.
OUTLIER_SIGMAS = 3.0
# The power at a moment is that of the series around it.
POWER_SPAN_S = 40e-3
# So many values next to the windows' ends suffice.
MOST_VALUES = 48

COUNTED, OUTSIDE, GAIN, IN_STEP = range(4)
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bridged:
    """Joules within the windows, their standard deviation, and how the values fit: 1 as expected, more is worse."""

    energy_j: float
    sigma_j: float
    misfit: float


@dataclass(frozen=True)
class _Steps:
    """From each value to the next, one row a hypothesis: the series' joules, and those within the windows."""

    spent_j: Matrix
    taken_j: Matrix
    spent_j2: Matrix
    taken_j2: Matrix
    sampled_j2: Matrix
    in_step_j: Matrix


@dataclass
class _State:
    """Mean and covariance of the four quantities, one row a hypothesis."""

    mean: Matrix
    covariance: npt.NDArray[np.float64]
    log_weight: Column
    misfit: Column


def bridge(
    hypotheses: Sequence[tuple[Sequence[Anchors], float]],
    curves: Sequence[Curve],
    windows_s: Windows,
    lags_s: Column,
    least_scale: float = 0.0,
) -> Bridged:
    """The joules within the windows, by the counter's values next to each curve, with the weight of their grid.

    Between two curves lies nothing but window. Variances are never scaled below ``least_scale``: a curve made of the
    counter itself can't vouch for its own shape.
    """
    num_rows = len(hypotheses) * len(lags_s)
    state = _State(
        np.zeros((num_rows, 4)),
        np.zeros((num_rows, 4, 4)),
        np.repeat(np.log([weight for _, weight in hypotheses]), len(lags_s)),
        np.full(num_rows, SCALE_FREEDOM),
    )
    state.covariance[:, GAIN, GAIN], state.covariance[:, IN_STEP, IN_STEP] = GAIN_SPREAD**2, STEP_SPREAD**2
    ends_s = np.ravel(windows_s)
    zero_j = hypotheses[0][0][0].energy_j[0]
    num_values = 0
    for part, curve in enumerate(curves):
        chosen = _nearest(hypotheses[0][0][part], ends_s)
        placed_s = [(anchors[part].time_s[chosen] - lags_s[:, None]) for anchors, _ in hypotheses]
        at_s = np.concatenate(placed_s)
        blur_s = np.concatenate([np.tile(anchors[part].blur_s[chosen], (len(lags_s), 1)) for anchors, _ in hypotheses])
        values_j = hypotheses[0][0][part].energy_j[chosen] - zero_j
        value_j2 = (_power_w(curve, at_s) * blur_s) ** 2 + DIGIT_J2
        steps = _steps(curve, at_s, ends_s)
        if part == 0:
            _begin_gain(state, float(values_j[-1] - values_j[0]), steps, value_j2)
        _follow(state, values_j, value_j2, steps, first=part == 0)
        num_values += len(values_j)
        if part == 0:
            before_j, before_j2 = _beyond(curve, at_s[:, 0], ends_s, before=True)
        if part == len(curves) - 1:
            after_j, after_j2 = _beyond(curve, at_s[:, -1], ends_s, before=False)
    return _result(state, before_j + after_j, before_j2 + after_j2, num_values, least_scale)


def lags_between(low_s: float, high_s: float) -> Column:
    """The lags to try."""
    return np.arange(low_s, high_s + LAG_STEP_S / 2, LAG_STEP_S)


def _nearest(anchors: Anchors, ends_s: Column) -> npt.NDArray[np.intp]:
    away_s = np.min(np.abs(anchors.time_s[:, None] - ends_s), axis=1)
    return np.sort(np.argsort(away_s, kind="stable")[:MOST_VALUES])


def _power_w(curve: Curve, at_s: Matrix) -> Matrix:
    half_s = POWER_SPAN_S / 2
    return np.asarray((curve.at(at_s + half_s) - curve.at(at_s - half_s)) / POWER_SPAN_S)


def _windows_sum(column: Matrix, at_s: Matrix, ends: Column, ends_s: Column) -> Matrix:
    """What lies within the windows up to each time, by the sum there and at the windows' ends."""
    which = np.searchsorted(ends_s, at_s, side="right")
    whole = np.concatenate(([0.0], np.cumsum(np.diff(ends) * (np.arange(len(ends) - 1) % 2 == 0)), [0.0]))
    begun = np.where(which % 2 == 1, column - ends[np.clip(which - 1, 0, len(ends) - 1)], 0.0)
    return np.asarray(whole[np.clip(which - 1, 0, len(ends) - 1)] * (which > 0) + begun)


def _steps(curve: Curve, at_s: Matrix, ends_s: Column) -> _Steps:
    energy_j, variance_j2 = curve.at(at_s), curve.variance_at(at_s)
    taken_j = _windows_sum(energy_j, at_s, curve.at(ends_s), ends_s)
    taken_j2 = _windows_sum(variance_j2, at_s, curve.variance_at(ends_s), ends_s)
    return _Steps(
        np.diff(energy_j, axis=1),
        np.diff(taken_j, axis=1),
        np.diff(variance_j2, axis=1) + DIGIT_J2,
        np.diff(taken_j2, axis=1),
        np.diff(curve.sum_at("sampled_j2", at_s), axis=1),
        np.diff(curve.sum_at("coherent_j", at_s), axis=1),
    )


def _beyond(curve: Curve, at_s: Column, ends_s: Column, *, before: bool) -> tuple[Column, Column]:
    """Joules and variance within the windows before the first value, or after the last."""
    found = []
    for column, ends in ((curve.at(at_s), curve.at(ends_s)), (curve.variance_at(at_s), curve.variance_at(ends_s))):
        taken = _windows_sum(column, at_s, ends, ends_s)
        whole = float(np.sum(np.diff(ends)[::2]))
        found.append(taken if before else whole - taken)
    return found[0], found[1]


def _begin_gain(state: _State, counted_j: float, steps: _Steps, value_j2: Matrix) -> None:
    """Where the sums differ by far more than the gain's spread and their own doubt, the series is off by that much."""
    spent_j = np.maximum(steps.spent_j.sum(axis=1), 1e-9)
    doubt_j2 = (steps.spent_j2 + steps.sampled_j2).sum(axis=1) + value_j2[:, 0] + value_j2[:, -1]
    doubt_j2 += (STEP_SPREAD * steps.in_step_j.sum(axis=1)) ** 2
    off, doubt2 = counted_j / spent_j - 1, GAIN_SPREAD**2 + doubt_j2 / spent_j**2
    far = off**2 > OUTLIER_SIGMAS**2 * doubt2
    state.mean[:, GAIN] = np.where(far, off, 0.0)
    state.covariance[:, GAIN, GAIN] = np.where(far, doubt2, GAIN_SPREAD**2)


def _follow(state: _State, values_j: Column, value_j2: Matrix, steps: _Steps, *, first: bool) -> None:
    """Take in the values along one curve; what lies before its first one is unknown, and within the windows."""
    mean, covariance = state.mean, state.covariance
    mean[:, COUNTED] = values_j[0]
    covariance[:, COUNTED, :] = covariance[:, :, COUNTED] = 0.0
    covariance[:, COUNTED, COUNTED] = value_j2[:, 0]
    if first:
        mean[:, OUTSIDE] = values_j[0]
        for other in (COUNTED, OUTSIDE):
            covariance[:, OUTSIDE, other] = covariance[:, other, OUTSIDE] = value_j2[:, 0]
    move = np.tile(np.eye(4), (len(mean), 1, 1))
    for number, value_j in enumerate(values_j[1:]):
        outside_j = steps.spent_j[:, number] - steps.taken_j[:, number]
        move[:, COUNTED, GAIN], move[:, OUTSIDE, GAIN] = steps.spent_j[:, number], outside_j
        move[:, COUNTED, IN_STEP] = move[:, OUTSIDE, IN_STEP] = steps.in_step_j[:, number]
        mean = (move @ mean[:, :, None])[:, :, 0]
        mean[:, COUNTED] += steps.spent_j[:, number]
        mean[:, OUTSIDE] += outside_j
        covariance = move @ covariance @ move.transpose(0, 2, 1)
        outside_j2 = steps.spent_j2[:, number] - steps.taken_j2[:, number] + steps.sampled_j2[:, number]
        covariance[:, COUNTED, COUNTED] += steps.spent_j2[:, number] + steps.sampled_j2[:, number]
        covariance[:, OUTSIDE, OUTSIDE] += outside_j2
        covariance[:, COUNTED, OUTSIDE] += outside_j2
        covariance[:, OUTSIDE, COUNTED] += outside_j2
        off_j = value_j - mean[:, COUNTED]
        expected_j2 = covariance[:, COUNTED, COUNTED] + value_j2[:, number + 1]
        far = off_j**2 > OUTLIER_SIGMAS**2 * expected_j2
        state.log_weight -= np.log(expected_j2) / 2
        state.misfit += np.minimum(off_j**2 / expected_j2, OUTLIER_SIGMAS**2)
        expected_j2 = np.where(far, expected_j2 + off_j**2, expected_j2)
        pull = covariance[:, :, COUNTED] / expected_j2[:, None]
        mean = mean + pull * off_j[:, None]
        covariance = covariance - pull[:, :, None] * covariance[:, None, COUNTED, :]
    state.mean, state.covariance = mean, covariance


def _result(state: _State, beyond_j: Column, beyond_j2: Column, num_values: int, least_scale: float) -> Bridged:
    freedom = SCALE_FREEDOM + num_values - 1
    log_weight = state.log_weight - freedom / 2 * np.log(state.misfit)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean, covariance = state.mean, state.covariance
    energy_j = mean[:, COUNTED] - mean[:, OUTSIDE] + beyond_j * (1 + mean[:, GAIN])
    pick = np.zeros((len(mean), 4))
    pick[:, COUNTED], pick[:, OUTSIDE], pick[:, GAIN] = 1.0, -1.0, beyond_j
    variance_j2 = np.einsum("ki,kij,kj->k", pick, covariance, pick) + beyond_j2
    scale = np.maximum(state.misfit / freedom, least_scale)
    mean_j = float(weight @ energy_j)
    sigma_j = float(np.sqrt(weight @ (scale * np.maximum(variance_j2, 0.0) + (energy_j - mean_j) ** 2)))
    return Bridged(mean_j, sigma_j, float(weight @ scale))
