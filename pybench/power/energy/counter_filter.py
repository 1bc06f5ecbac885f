"""A Kalman filter over the counter's values, many hypotheses at once. The extension runs it: ``csrc/counter_filter.h``.

Axes are values, phases of a sampling counter, and hypotheses of lag and grid; a column that is the same for every phase
has one.

It follows four quantities (Kalman, J. Basic Eng. 82, 1960): what the counter should hold, the same less what the
windows hold, the series' gain, and how far the counter's own sampling goes wrong at jumps of a load in step with it.
The first two are without what the series has since the curve's first value, so that nothing moves them from one value
to the next but doubt: the series' variance is added, and the variance of what a counter that adds up samples misses at
jumps of any phase. Their difference and the series' joules within the windows are the joules within the windows.

Hypotheses are weighted by how well the values follow on each other, under one unknown common scale of all variances (a
multivariate Student t), so that a shape that does not follow the counter widens the bound. Now and then a value lies
far beside the grid: it is given that much doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench import _energy

# How far in step with the counter's sampling a load is taken to be, as a standard deviation; 1 is wholly.
STEP_SPREAD = 0.75
# Part of what a sampling counter misses at a jump that stays unknown where its phase is known: the series shows a jump
# only between its own samples. With 0.3, 7 of 200 simulated windows of 1 s over squares of 300 ms were outside where
# every publication of the counter was read, with 0.6 three.
PHASED_REST = 0.6

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bridged:
    """Joules within the windows, their standard deviation, and how the values fit: 1 as expected, more is worse."""

    energy_j: float
    sigma_j: float
    misfit: float


@dataclass(frozen=True)
class Steps:
    """From each value to the next, by phase and hypothesis: the series' joules, and those within the windows."""

    spent_j: Matrix
    taken_j: Matrix
    spent_j2: Matrix
    taken_j2: Matrix
    sampled_j2: Matrix
    counted_j2: Matrix
    in_step_j: Matrix

    def keep(self, which: npt.NDArray[np.intp]) -> Steps:
        """Only the hypotheses of these numbers."""
        return Steps(**{name: column[..., which] for name, column in vars(self).items()})

    def phased(self) -> Steps:
        """The same where the phase of a sampling counter is known: what it misses is known but for a part."""
        return replace(self, sampled_j2=self.sampled_j2 * PHASED_REST**2, in_step_j=self.in_step_j * PHASED_REST)


@dataclass(frozen=True)
class Outcome:
    """Of each hypothesis, by phase: its weight's logarithm, the joules within the windows, and how the values fit."""

    log_weight: Matrix
    energy_j: Matrix
    variance_j2: Matrix
    misfit: Matrix

    def likely(self, least: float) -> npt.NDArray[np.intp]:
        """The numbers of hypotheses of one phase whose weight is more than this part of the best one's."""
        (log_weight,) = self.log_weight
        return np.flatnonzero(log_weight > np.log(least) + log_weight.max())

    def keep(self, which: npt.NDArray[np.intp], belief: float) -> Outcome:
        """Only the hypotheses of these numbers, believed so much."""
        kept = {name: column[:, which] for name, column in vars(self).items()}
        return replace(Outcome(**kept), log_weight=kept["log_weight"] + np.log(belief))


def together(outcomes: Sequence[Outcome], least_scale: float) -> Bridged:
    """The joules by all hypotheses, whose variances are never scaled below ``least_scale``."""
    columns = zip(*(vars(outcome).values() for outcome in outcomes), strict=True)
    log_weight, energy_j, variance_j2, misfit = (
        np.concatenate([each.ravel() for each in column]) for column in columns
    )
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    scale = np.maximum(misfit, least_scale)
    mean_j = float(weight @ energy_j)
    doubt_j2 = scale * np.maximum(variance_j2, 0.0) + (energy_j - mean_j) ** 2
    return Bridged(mean_j, float(np.sqrt(weight @ doubt_j2)), float(weight @ scale))


def filtered(
    parts: Sequence[tuple[Matrix, Matrix, Steps]],
    belief: Matrix,
    further_spread: float,
    beyond_j: Matrix,
    beyond_j2: Matrix,
) -> Outcome:
    """The joules within the windows by each hypothesis, from the values along each curve with their variances.

    Each hypothesis is believed so much before any value, and the series' gain has a further spread. What lies before
    the first value and after the last, with its variance, is ``beyond``.
    """
    columns = [(values_j, value_j2, *vars(steps).values()) for values_j, value_j2, steps in parts]
    return Outcome(
        *_energy.filtered(columns, belief[None], further_spread, STEP_SPREAD, beyond_j[None], beyond_j2[None])
    )
