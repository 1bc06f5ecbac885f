"""A Kalman filter over the counter's values, for many hypotheses at once. The loop is ``csrc/counter_filter.h``.

Axes of all columns: values, phases of a counter that samples, hypotheses of lag and grid. A column without dependence
on the phase has length 1 there.

The filter follows four quantities (Kalman, J. Basic Eng. 82, 1960), the first two relative to the series: the counter's
sum; that sum outside the windows; the series' gain; and the error of a counter that samples in step with the load. From
value to value the variance grows by that of the series and by that of a counter that samples jumps of any phase. The
joules within the windows are the series' plus the difference of the first two quantities.

Each hypothesis is weighted by the fit of its values under one unknown scale of all variances (a multivariate Student
t), so a shape that does not match the counter widens the bound. Outlying values get a larger variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench import _energy

# Standard deviation of how far a load is in step with the counter's sampling; 1 is fully.
STEP_SPREAD = 0.75
# Part of the sampling error at a jump that stays unknown with the phase known: the series locates a jump only between
# its samples. With 0.3, 7 of 200 simulated windows of 1 s over squares of 300 ms were outside, with 0.6 three.
PHASED_REST = 0.6

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

    def keep(self, which: npt.NDArray[np.intp]) -> Steps:
        """The hypotheses of these numbers."""
        return Steps(**{name: column[..., which] for name, column in vars(self).items()})

    def phased(self) -> Steps:
        """With the phase of a sampling counter known, only a part of its error stays unknown."""
        return replace(self, sampled_j2=self.sampled_j2 * PHASED_REST**2, in_step_j=self.in_step_j * PHASED_REST)


@dataclass(frozen=True)
class Outcome:
    """By phase and hypothesis: logarithm of the weight, joules within the windows, their variance, and the misfit."""

    log_weight: Matrix
    energy_j: Matrix
    variance_j2: Matrix
    misfit: Matrix

    def likely(self, least: float) -> npt.NDArray[np.intp]:
        """Numbers of the hypotheses with more than ``least`` of the best weight, for one phase."""
        (log_weight,) = self.log_weight
        return np.flatnonzero(log_weight > np.log(least) + log_weight.max())

    def keep(self, which: npt.NDArray[np.intp], belief: float) -> Outcome:
        """The hypotheses of these numbers, their weights times ``belief``."""
        kept = {name: column[:, which] for name, column in vars(self).items()}
        return replace(Outcome(**kept), log_weight=kept["log_weight"] + np.log(belief))


@dataclass(frozen=True)
class Bridged:
    """Joules within the windows, their standard deviation, and the misfit: 1 as expected, more is worse."""

    energy_j: float
    sigma_j: float
    misfit: float


def together(outcomes: Sequence[Outcome], least_scale: float) -> Bridged:
    """The weighted mean over all hypotheses. Variances are scaled by the misfit, at least by ``least_scale``."""
    columns = zip(*(vars(outcome).values() for outcome in outcomes), strict=True)
    log_weight, energy_j, variance_j2, misfit = (
        np.concatenate([part.ravel() for part in column]) for column in columns
    )
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    scale = np.maximum(misfit, least_scale)
    mean_j = float(weight @ energy_j)
    spread_j2 = scale * np.maximum(variance_j2, 0.0) + (energy_j - mean_j) ** 2
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
    return Outcome(*_energy.filtered(columns, belief[None], gain_spread, STEP_SPREAD, beyond_j[None], beyond_j2[None]))
