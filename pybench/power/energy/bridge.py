"""Counter sums joined with the series' shape.

The series gives the energy over time but for a gain near 1; the counter gives its sum at some moments, each misplaced
by some part of a millisecond. A filter over the counter's values (:mod:`~pybench.power.energy.counter_filter`)
joins them.

What moments counter values are of is not known: they lag their publication by a fixed time. Every lag and every grid
that the readings allow is tried, and weighted by how well the values then follow on each other. Where the load jumps,
every phase of a counter that adds up samples is tried, too, with each likely one of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.energy.anchors import Anchors
from pybench.power.energy.counter_filter import STEP_SPREAD, Bridged, Outcome, Steps, filtered, together
from pybench.power.energy.curve import Curve, Windows
from pybench.power.energy.sampled_counter import missed_j, phases_s
from pybench.power.energy.times import Column

LAG_STEP_S = 1e-3
DIGIT_J2 = 1e-6
# The power at a moment is that of the series around it.
POWER_SPAN_S = 40e-3
# So many values next to the windows' ends suffice.
MOST_VALUES = 48
# Values that happen to follow each other closely show little of the shape at the windows' ends: variances are never
# scaled below this.
LEAST_SCALE = 0.6
# Belief that the counter integrates, or samples at no fixed phase; else it samples on a grid of its own.
UNPHASED_WEIGHT = 0.5
# Phases are tried with hypotheses that have at least this part of the best one's weight.
LIKELY = 1e-3

# Of a curve, as the filter takes them.
SUMS = ("variance_j2", "sampled_j2", "counted_j2", "coherent_j")

Matrix = npt.NDArray[np.float64]
Hypotheses = Sequence[tuple[Sequence[Anchors], float]]
"""The counter's values next to each curve by one grid, and the grid's weight."""


def bridge(
    hypotheses: Hypotheses,
    curves: Sequence[Curve],
    windows_s: Windows,
    lags_s: Column,
    least_scale: float = LEAST_SCALE,
    sample_period_s: float | None = None,
) -> Bridged:
    """The joules within the windows, by the counter's values next to each curve.

    Between two curves lies nothing but window. Variances are never scaled below ``least_scale``: a curve made of the
    counter itself can't vouch for its own shape. With ``sample_period_s`` the counter may add up samples so far apart,
    at an unknown phase.
    """
    ends_s = np.ravel(windows_s)
    parts = [_Part.of(hypotheses, number, curve, ends_s, lags_s) for number, curve in enumerate(curves)]
    belief = np.repeat([weight for _, weight in hypotheses], len(lags_s))[None]
    outcomes = [_followed(parts, belief)]
    if sample_period_s is not None and all(part.shows_sampling() for part in parts):
        likely, phases = outcomes[0].likely(LIKELY), phases_s(sample_period_s)
        phased = [part.keep(likely).by_phase(phases, sample_period_s) for part in parts]
        by_phase = np.repeat((1 - UNPHASED_WEIGHT) / len(phases) * belief[:, likely], len(phases), axis=0)
        outcomes = [outcomes[0].keep(likely, UNPHASED_WEIGHT), _followed(phased, by_phase)]
    return together(outcomes, least_scale)


def lags_between(low_s: float, high_s: float) -> Column:
    """The lags to try."""
    return np.arange(low_s, high_s + LAG_STEP_S / 2, LAG_STEP_S)


def _followed(parts: Sequence[_Part], belief: Matrix) -> Outcome:
    spread = max(
        part.curve.mean_sigma_w * float(np.ptp(part.at_s)) / max(part.steps.spent_j.sum(axis=0).max(), 1e-9)
        for part in parts
    )
    before, after = parts[0].before, parts[-1].after
    beyond_j, beyond_j2 = before.energy_j + after.energy_j, before.variance_j2 + after.variance_j2
    values = [(part.values_j, part.value_j2, part.steps) for part in parts]
    return filtered(values, belief, spread, beyond_j, beyond_j2)


@dataclass(frozen=True)
class _Taken:
    """What lies within the windows, by phase and hypothesis."""

    energy_j: Matrix
    variance_j2: Matrix

    def keep(self, which: npt.NDArray[np.intp]) -> _Taken:
        """Only the hypotheses of these numbers."""
        return _Taken(self.energy_j[..., which], self.variance_j2[..., which])


@dataclass(frozen=True)
class _Part:
    """The counter's values next to one curve: by value, phase and hypothesis, as the filter has them.

    ``before`` is of the windows before the first value, ``after`` of those after the last.
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
        """Every lag with every grid; values are from the first one of all curves."""
        own = [anchors[number] for anchors, _ in hypotheses]
        chosen = _nearest(own[0], ends_s)
        time_s, blur_s = (np.stack(columns, axis=1) for columns in zip(*_of_values(own, chosen), strict=True))
        at_s = (time_s[:, :, None] - lags_s).reshape(len(chosen), 1, -1)
        values_j = own[0].energy_j[chosen] - hypotheses[0][0][0].energy_j[0]
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
        steps = Steps(_grown(energy_j), _grown(taken_j), _grown(variance_j2) + DIGIT_J2, _grown(taken_j2), *further)
        whole_j, whole_j2 = (float((ends[1::2] - ends[::2]).sum()) for ends in (ends_j, ends_j2))
        before, after = _Taken(taken_j[0], taken_j2[0]), _Taken(whole_j - taken_j[-1], whole_j2 - taken_j2[-1])
        return cls(curve, at_s, values_j[:, None, None], value_j2, steps, before, after)

    def shows_sampling(self) -> bool:
        """Whether the load jumps by so much that a counter which samples would be off by more than its blur.

        Not where ripples were found: their jumps are too many to separate the counter's error from the series' own.
        """
        missed_j2 = self.steps.sampled_j2.sum(axis=0)
        return not self.curve.ripples and bool(np.mean(missed_j2) > np.mean(self.value_j2))

    def keep(self, which: npt.NDArray[np.intp]) -> _Part:
        """Only the hypotheses of these numbers."""
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
        """For every phase of a sampling counter."""
        missed = missed_j(self.curve, self.at_s, phases, sample_period_s)
        return replace(self, values_j=self.values_j + (missed - missed[:1]), steps=self.steps.phased())


def _of_values(own: Sequence[Anchors], chosen: npt.NDArray[np.intp]) -> list[tuple[Column, Column]]:
    """Time and blur of the chosen values by each grid."""
    return [(anchors.time_s[chosen], anchors.blur_s[chosen]) for anchors in own]


def _nearest(anchors: Anchors, ends_s: Column) -> npt.NDArray[np.intp]:
    away_s = np.min(np.abs(anchors.time_s[:, None] - ends_s), axis=1)
    return np.sort(np.argsort(away_s, kind="stable")[:MOST_VALUES])


def _grown(column: Matrix) -> Matrix:
    """From each time to the next."""
    return np.asarray(column[1:] - column[:-1])
