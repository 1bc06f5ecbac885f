"""Counter sums joined with the series' shape.

The series gives the energy over time up to a gain near 1; the counter gives its sum at some moments, each with an error
of some tenths of a ms. A Kalman filter over the counter's values joins them; its loop is ``csrc/counter_filter.h``.

Counter values lag their publication by a fixed unknown time. Every lag and grid that the readings allow is tried and
weighted by the fit of the values.

Axes of the filter's columns: values, hypotheses of lag and grid. The filter follows four quantities (Kalman, J. Basic
Eng. 82, 1960), the first two relative to the series: the counter's sum; that sum outside the windows; the series' gain;
and the error of a counter that samples in step with the load. The variance grows from value to value by the series'
variance and by the variance of a counter that samples jumps of any phase. The joules within the windows are the series'
plus the difference of the first two quantities.

Each hypothesis is weighted by the fit of its values under one unknown scale of all variances (a multivariate Student
t), so a shape that does not match the counter widens the bound. Outlying values get a larger variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.counter import Anchors
from pybench.power.curve import Curve
from pybench.power.samples import Column, Windows

# Standard deviation of how far a load is in step with the counter's sampling; 1 is fully.
STEP_SPREAD = 0.75
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """From each value to the next: joules ``spent`` by the series, joules ``taken`` within windows, variances."""

    spent_j: Matrix
    taken_j: Matrix
    spent_j2: Matrix
    taken_j2: Matrix
    sampled_j2: Matrix
    counted_j2: Matrix
    in_step_j: Matrix


@dataclass(frozen=True)
class Outcome:
    """By hypothesis: logarithm of the weight, joules within the windows, their variance, and the misfit."""

    log_weight: Matrix
    energy_j: Matrix
    variance_j2: Matrix
    misfit: Matrix


@dataclass(frozen=True)
class Bridged:
    """Joules within the windows, their standard deviation, and the misfit: 1 as expected, more is worse."""

    energy_j: float
    sigma_j: float
    misfit: float


def together(outcome: Outcome, least_scale: float) -> Bridged:
    """The weighted mean over all hypotheses. Variances are scaled by the misfit, at least by ``least_scale``."""
    weight = np.exp(outcome.log_weight - outcome.log_weight.max())
    weight /= weight.sum()
    scale = np.maximum(outcome.misfit, least_scale)
    mean_j = float(weight @ outcome.energy_j)
    spread_j2 = scale * np.maximum(outcome.variance_j2, 0.0) + (outcome.energy_j - mean_j) ** 2
    return Bridged(mean_j, float(np.sqrt(weight @ spread_j2)), float(weight @ scale))


def filtered(
    parts: Sequence[tuple[Matrix, Matrix, Steps]],
    belief: Matrix,
    gain_spread: float,
    beyond_j: Matrix,
    beyond_j2: Matrix,
) -> Outcome:
    """Filter each hypothesis.

    Args:
        parts: for each curve the counter's values, their variances, and the steps between them.
        belief: prior weight of each hypothesis.
        gain_spread: additional standard deviation of the series' gain.
        beyond_j: joules within the windows before the first value and after the last.
        beyond_j2: their variance.
    """
    columns = [(values_j, value_j2, *vars(steps).values()) for values_j, value_j2, steps in parts]
    return Outcome(*_energy.filtered(columns, belief, gain_spread, STEP_SPREAD, beyond_j, beyond_j2))


# Step in s of the lags that are tried.
LAG_STEP_S = 1e-3
# Variance of the counter's resolution of 1 mJ.
DIGIT_J2 = 1e-6
# Span in s around a value over which the series gives the power at that moment.
POWER_SPAN_S = 40e-3
# Values nearest to the windows' ends that are used.
MOST_VALUES = 48
# Least scale of the variances: values that agree by chance say little about the shape at the windows' ends.
LEAST_SCALE = 0.6
# Sums of a curve in the order of :class:`Steps`.
SUMS = ("variance_j2", "sampled_j2", "counted_j2", "coherent_j")

Hypotheses = Sequence[tuple[Sequence[Anchors], float]]
"""Anchors next to each curve by one grid, and the grid's weight."""


def bridge(
    hypotheses: Hypotheses,
    curves: Sequence[Curve],
    windows_s: Windows,
    lags_s: tuple[float, float],
    least_scale: float = LEAST_SCALE,
) -> Bridged:
    """Joules within the windows.

    Args:
        hypotheses: anchors by each grid.
        curves: the series around the windows, or at both ends of a long one.
        windows_s: the windows.
        lags_s: shortest and longest lag of the counter.
        least_scale: variances are never scaled below this; 1 for a curve made of the counter itself.
    """
    ends_s = np.ravel(windows_s)
    tried_s = np.arange(lags_s[0], lags_s[1] + LAG_STEP_S / 2, LAG_STEP_S)
    parts = [_Part.of(hypotheses, number, curve, ends_s, tried_s) for number, curve in enumerate(curves)]
    belief = np.repeat([weight for _, weight in hypotheses], len(tried_s))
    return together(_followed(parts, belief), least_scale)


def _followed(parts: Sequence[_Part], belief: Matrix) -> Outcome:
    gain_spread = max(
        part.curve.mean_sigma_w * float(np.ptp(part.at_s)) / max(part.steps.spent_j.sum(axis=0).max(), 1e-9)
        for part in parts
    )
    before, after = parts[0].before, parts[-1].after
    beyond_j, beyond_j2 = before.energy_j + after.energy_j, before.variance_j2 + after.variance_j2
    values = [(part.values_j, part.value_j2, part.steps) for part in parts]
    return filtered(values, belief, gain_spread, beyond_j, beyond_j2)


@dataclass(frozen=True)
class _Taken:
    """Energy within the windows, by hypothesis."""

    energy_j: Matrix
    variance_j2: Matrix


@dataclass(frozen=True)
class _Part:
    """Input of the filter for one curve: by value and hypothesis.

    ``before`` is the windows' energy before the first value, ``after`` that after the last.
    """

    curve: Curve
    at_s: Matrix
    values_j: Matrix
    value_j2: Matrix
    steps: Steps
    before: _Taken
    after: _Taken

    @classmethod
    def of(cls, hypotheses: Hypotheses, number: int, curve: Curve, ends_s: Column, lags_s: Column) -> _Part:
        """Every lag with every grid. Values count from the first one of the first curve."""
        by_grid = [anchors[number] for anchors, _ in hypotheses]
        away_s = np.min(np.abs(by_grid[0].time_s[:, None] - ends_s), axis=1)
        chosen = np.sort(np.argsort(away_s, kind="stable")[:MOST_VALUES])
        time_s = np.stack([anchors.time_s[chosen] for anchors in by_grid], axis=1)
        blur_s = np.stack([anchors.blur_s[chosen] for anchors in by_grid], axis=1)
        at_s = (time_s[:, :, None] - lags_s).reshape(len(chosen), -1)
        values_j = by_grid[0].energy_j[chosen] - hypotheses[0][0][0].energy_j[0]
        blurs_s = np.repeat(blur_s, len(lags_s), axis=1)
        half_s = POWER_SPAN_S / 2
        before_j, energy_j, after_j = curve.at(np.stack((at_s - half_s, at_s, at_s + half_s)))
        value_j2 = ((after_j - before_j) / POWER_SPAN_S * blurs_s) ** 2 + DIGIT_J2 + curve.drifting_j2
        sums = curve.sums_at(SUMS, at_s)
        variance_j2, ends_j, ends_j2 = sums[0], curve.at(ends_s), curve.sums_at(SUMS[:1], ends_s)[0]
        taken_j = _energy.within(ends_s, ends_j, at_s, energy_j)
        taken_j2 = _energy.within(ends_s, ends_j2, at_s, variance_j2)
        if curve.in_step_w:
            sums[3] += curve.in_step_w * at_s / STEP_SPREAD
        further = sums[1:, 1:] - sums[1:, :-1]
        steps = Steps(
            np.diff(energy_j, axis=0),
            np.diff(taken_j, axis=0),
            np.diff(variance_j2, axis=0) + DIGIT_J2,
            np.diff(taken_j2, axis=0),
            *further,
        )
        whole_j, whole_j2 = (float((ends[1::2] - ends[::2]).sum()) for ends in (ends_j, ends_j2))
        before, after = _Taken(taken_j[0], taken_j2[0]), _Taken(whole_j - taken_j[-1], whole_j2 - taken_j2[-1])
        return cls(curve, at_s, values_j[:, None], value_j2, steps, before, after)
