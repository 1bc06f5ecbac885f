"""Counter sums joined with the series' shape.

The series gives the energy over time up to a gain near 1; the counter gives its sum at some moments, each with an error
of some tenths of a ms. A Kalman filter over the counter's values joins them; its loop is ``csrc/counter_filter.h``.

Counter values lag their publication by a fixed unknown time. Every lag and grid that the readings allow is tried and
weighted by the fit of the values. Where the load jumps, each phase of a counter that samples is tried, too.

Axes of the filter's columns: values, phases of a counter that samples, hypotheses of lag and grid. A column without
dependence on the phase has length 1 there. The filter follows four quantities (Kalman, J. Basic Eng. 82, 1960), the
first two relative to the series: the counter's sum; that sum outside the windows; the series' gain; and the error of a
counter that samples in step with the load. The variance grows from value to value by the series' variance and by the
variance of a counter that samples jumps of any phase. The joules within the windows are the series' plus the difference
of the first two quantities.

Each hypothesis is weighted by the fit of its values under one unknown scale of all variances (a multivariate Student
t), so a shape that does not match the counter widens the bound. Outlying values get a larger variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.counter import Anchors
from pybench.power.curve import Curve
from pybench.power.samples import Column, Windows

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


# Steps in s of the lags and of the phases of a sampling counter that are tried.
LAG_STEP_S = 1e-3
PHASE_STEP_S = 2.5e-3
# Variance of the counter's resolution of 1 mJ.
DIGIT_J2 = 1e-6
# Span in s around a value over which the series gives the power at that moment.
POWER_SPAN_S = 40e-3
# Values nearest to the windows' ends that are used.
MOST_VALUES = 48
# Least scale of the variances: values that agree by chance say little about the shape at the windows' ends.
LEAST_SCALE = 0.6
# Prior weight of a counter that integrates, or samples at no fixed phase.
UNPHASED_WEIGHT = 0.5
# Hypotheses below this fraction of the best weight are not tried by phase.
LIKELY = 1e-3
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
    sample_period_s: float | None = None,
) -> Bridged:
    """Joules within the windows.

    Args:
        hypotheses: anchors by each grid.
        curves: the series around the windows, or at both ends of a long one.
        windows_s: the windows.
        lags_s: shortest and longest lag of the counter.
        least_scale: variances are never scaled below this; 1 for a curve made of the counter itself.
        sample_period_s: sampling period of the counter, ``None`` if it integrates.
    """
    ends_s = np.ravel(windows_s)
    tried_s = np.arange(lags_s[0], lags_s[1] + LAG_STEP_S / 2, LAG_STEP_S)
    parts = [_Part.of(hypotheses, number, curve, ends_s, tried_s) for number, curve in enumerate(curves)]
    belief = np.repeat([weight for _, weight in hypotheses], len(tried_s))[None]
    outcomes = [_followed(parts, belief)]
    if sample_period_s is not None and all(part.shows_sampling() for part in parts):
        likely, phases = outcomes[0].likely(LIKELY), phases_s(sample_period_s)
        phased = [part.keep(likely).by_phase(phases, sample_period_s) for part in parts]
        by_phase = np.repeat((1 - UNPHASED_WEIGHT) / len(phases) * belief[:, likely], len(phases), axis=0)
        outcomes = [outcomes[0].keep(likely, UNPHASED_WEIGHT), _followed(phased, by_phase)]
    return together(outcomes, least_scale)


def phases_s(period_s: float) -> Column:
    """Phases of the counter's samples to try."""
    return np.asarray(np.arange(max(round(period_s / PHASE_STEP_S), 1)) * PHASE_STEP_S)


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
    """Energy within the windows, by phase and hypothesis."""

    energy_j: Matrix
    variance_j2: Matrix

    def keep(self, which: npt.NDArray[np.intp]) -> _Taken:
        return _Taken(self.energy_j[..., which], self.variance_j2[..., which])


@dataclass(frozen=True)
class _Part:
    """Input of the filter for one curve: by value, phase and hypothesis.

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
        at_s = (time_s[:, :, None] - lags_s).reshape(len(chosen), 1, -1)
        values_j = by_grid[0].energy_j[chosen] - hypotheses[0][0][0].energy_j[0]
        blurs_s = np.repeat(blur_s, len(lags_s), axis=1)[:, None]
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
        return cls(curve, at_s, values_j[:, None, None], value_j2, steps, before, after)

    def shows_sampling(self) -> bool:
        """Whether the load's jumps move a sampling counter by more than its blur.

        Not with ripples: their many jumps can't be separated from the series' own error.
        """
        missed_j2 = self.steps.sampled_j2.sum(axis=0)
        return not self.curve.ripples and bool(np.mean(missed_j2) > np.mean(self.value_j2))

    def keep(self, which: npt.NDArray[np.intp]) -> _Part:
        """The hypotheses of these numbers."""
        if len(which) == self.at_s.shape[-1]:
            return self
        return replace(
            self,
            at_s=self.at_s[..., which],
            value_j2=self.value_j2[..., which],
            steps=self.steps.keep(which),
            before=self.before.keep(which),
            after=self.after.keep(which),
        )

    def by_phase(self, phases: Column, sample_period_s: float) -> _Part:
        """With the sampling error of each phase taken out of the values.

        A counter that samples the power every T behind a low-pass of tau follows the load T/2 + tau late, and is off
        by up to 2 ms of each jump, by the jump's phase.
        """
        curve = self.curve
        assert curve.seen_w is not None
        late_s, load_j = self.at_s + (curve.tau_s + sample_period_s / 2), curve.at(self.at_s)
        counted_j = _energy.counted(
            curve.time_s,
            curve.energy_j,
            curve.seen_w,
            tau_s=curve.tau_s,
            at_s=late_s.ravel(),
            phase_s=phases,
            period_s=sample_period_s,
        )
        missed_j = load_j - np.moveaxis(counted_j.reshape(-1, *late_s[:, 0].shape), 0, 1)
        return replace(self, values_j=self.values_j + (missed_j - missed_j[:1]), steps=self.steps.phased())
