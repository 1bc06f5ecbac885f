"""A Kalman filter over the counter's values, many hypotheses at once.

Axes are values, phases of a sampling counter, and hypotheses of lag and grid, last so that each step is one pass over
all of them; a column that is the same for every phase has one.

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

# Counter and series agreed to 0.15 % over 3 s, to 0.11 % over 20 s.
GAIN_SPREAD = 1e-3
# How far in step with the counter's sampling a load is taken to be, as a standard deviation; 1 is wholly.
STEP_SPREAD = 0.75
# Part of what a sampling counter misses at a jump that stays unknown where its phase is known.
PHASED_REST = 0.3
# Hypotheses by which the series is not off as a whole are preferred, by so much in the logarithm of their weight.
MOST_GAIN_COST = 12.0
# Weight of the expected scale against the data's, in values.
SCALE_FREEDOM = 3.0
# A value this many standard deviations off is misplaced.
OUTLIER_SIGMAS = 3.0

COUNTED, OUTSIDE, GAIN, IN_STEP = range(4)
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


@dataclass
class Filter:
    """Mean and covariance of the quantities, which are their first axes, by phase and hypothesis."""

    mean: Matrix
    covariance: npt.NDArray[np.float64]
    log_weight: Matrix
    misfit: Matrix
    num_values: int = 0
    last: Steps | None = None

    @classmethod
    def of(cls, belief: Matrix, further_spread: float, *, in_step: bool) -> Filter:
        """Before any value; the series' gain has a further spread. Only a load ``in_step`` needs the last quantity."""
        num = 4 if in_step else 3
        covariance = np.zeros((num, num, *belief.shape))
        covariance[GAIN, GAIN], covariance[IN_STEP:, IN_STEP:] = GAIN_SPREAD**2 + further_spread**2, STEP_SPREAD**2
        return cls(np.zeros((num, *belief.shape)), covariance, np.log(belief), np.full(belief.shape, SCALE_FREEDOM))

    def follow(self, values_j: Matrix, value_j2: Matrix, steps: Steps) -> None:
        """Take in the values along one curve; what lies before its first one is unknown, and within the windows."""
        counted_j2 = steps.spent_j2 + steps.sampled_j2 + steps.counted_j2
        outside_j2 = counted_j2 - steps.taken_j2
        spent_j, in_step_j = np.cumsum(steps.spent_j, axis=0), np.cumsum(steps.in_step_j, axis=0)
        if self.last is None:
            doubt_j2 = counted_j2.sum(axis=0) + value_j2[0] + value_j2[-1]
            doubt_j2 += (STEP_SPREAD * steps.in_step_j.sum(axis=0)) ** 2
            self._begin_gain(values_j[-1] - values_j[0], steps.spent_j.sum(axis=0), doubt_j2)
        self._begin(values_j[0], value_j2[0])
        for number, value_j in enumerate(values_j[1:]):
            self._doubt(counted_j2[number], outside_j2[number])
            self._correct(value_j, value_j2[number + 1], spent_j[number], in_step_j[number])
        self.num_values += len(values_j)
        self.last = steps

    def outcome(self, beyond_j: Matrix, beyond_j2: Matrix) -> Outcome:
        """The joules within the windows, with those before the first value and after the last."""
        assert self.last is not None
        mean, covariance = self.mean, self.covariance
        within_j = self.last.taken_j.sum(axis=0) + beyond_j
        energy_j = mean[COUNTED] - mean[OUTSIDE] + within_j * (1 + mean[GAIN])
        apart_j2 = covariance[COUNTED, COUNTED] + covariance[OUTSIDE, OUTSIDE] - 2 * covariance[COUNTED, OUTSIDE]
        with_gain_j = covariance[COUNTED, GAIN] - covariance[OUTSIDE, GAIN]
        variance_j2 = apart_j2 + within_j * (2 * with_gain_j + within_j * covariance[GAIN, GAIN]) + beyond_j2
        freedom = SCALE_FREEDOM + self.num_values - 1
        log_weight = self.log_weight - freedom / 2 * np.log(self.misfit)
        return Outcome(log_weight, energy_j, variance_j2, self.misfit / freedom)

    def _begin_gain(self, counted_j: Matrix, spent_j: Matrix, doubt_j2: Matrix) -> None:
        """Where the sums differ by far more than the gain's spread and their own doubt, the series is off by that."""
        spent_j = np.maximum(spent_j, 1e-9)
        gain_spread2 = self.covariance[GAIN, GAIN]
        off, doubt2 = counted_j / spent_j - 1, gain_spread2 + doubt_j2 / spent_j**2
        far = off**2 > OUTLIER_SIGMAS**2 * doubt2
        if not far.any():
            return
        self.log_weight -= np.where(far, np.minimum(off**2 / doubt2 / 2, MOST_GAIN_COST), 0.0)
        self.mean[GAIN] = np.where(far, off, 0.0)
        self.covariance[GAIN, GAIN] = np.where(far, doubt2, gain_spread2)

    def _begin(self, value_j: Matrix, value_j2: Matrix) -> None:
        mean, covariance = self.mean, self.covariance
        if self.last is None:
            mean[COUNTED], mean[OUTSIDE] = value_j, value_j
            covariance[: OUTSIDE + 1, : OUTSIDE + 1] = value_j2
        else:
            self._leave(self.last)
            mean[COUNTED] = value_j
            covariance[COUNTED] = covariance[:, COUNTED] = 0.0
            covariance[COUNTED, COUNTED] = value_j2

    def _leave(self, steps: Steps) -> None:
        """Behind a curve, what the series has outside of the windows along it is part of the second quantity."""
        outside_j = (steps.spent_j - steps.taken_j).sum(axis=0)
        self.mean[OUTSIDE] += outside_j
        self._add(OUTSIDE, GAIN, outside_j)
        if len(self.mean) > IN_STEP:
            self._add(OUTSIDE, IN_STEP, steps.in_step_j.sum(axis=0))

    def _add(self, quantity: int, other: int, times: Matrix) -> None:
        """Add to one quantity another, which it does not change, so many times."""
        self.mean[quantity] += times * self.mean[other]
        self.covariance[quantity] += times * self.covariance[other]
        self.covariance[:, quantity] += times * self.covariance[:, other]

    def _doubt(self, counted_j2: Matrix, outside_j2: Matrix) -> None:
        """From one value to the next: what is doubtful outside of the windows is so of both quantities alike."""
        self.covariance[COUNTED, COUNTED] += counted_j2
        self.covariance[OUTSIDE, OUTSIDE] += outside_j2
        self.covariance[COUNTED, OUTSIDE] += outside_j2
        self.covariance[OUTSIDE, COUNTED] += outside_j2

    def _correct(self, value_j: Matrix, value_j2: Matrix, spent_j: Matrix, in_step_j: Matrix) -> None:
        """Take in a value that comes after so many joules of the series, and of what may go wrong in step."""
        mean, covariance = self.mean, self.covariance
        off_j = value_j - spent_j - _of_value(mean, spent_j, in_step_j)
        with_value_j2 = _of_value(covariance, spent_j, in_step_j)
        expected_j2, off_j2 = _of_value(with_value_j2, spent_j, in_step_j) + value_j2, off_j**2
        far = off_j2 > OUTLIER_SIGMAS**2 * expected_j2
        self.log_weight -= np.log(expected_j2) / 2
        self.misfit += np.minimum(off_j2 / expected_j2, OUTLIER_SIGMAS**2)
        pull = with_value_j2 / np.where(far, expected_j2 + off_j2, expected_j2)
        mean += pull * off_j
        covariance -= pull[:, None] * with_value_j2


def _of_value(quantities: Matrix, spent_j: Matrix, in_step_j: Matrix) -> Matrix:
    """What is expected of a value less the series' joules, by that of each quantity."""
    expected = quantities[COUNTED] + spent_j * quantities[GAIN]
    return np.asarray(expected + in_step_j * quantities[IN_STEP] if len(quantities) > IN_STEP else expected)
