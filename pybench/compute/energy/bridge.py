"""Counter sums joined with the series' shape.

Between two counter values the sum is known and the series tells how it was spent. Each part of the series has a
variance; what the series has too much or too little is handed to the parts in proportion to it (the conditional mean
of a Gaussian bridge). Of a part of variance ``x`` in an interval of ``W``, ``x·(1 - x/W)`` stays unknown: nothing of
the whole. ``W`` holds the variance of the series and of both values, whose publication is off its grid now and then;
a value's own counts as part of what spans it.

When counter values are of is not known: they lag their publication by a fixed time. Every lag and every grid that
the readings allow is tried, and weighted by how well the series then foretells the counter, under one unknown common
scale of all variances (a multivariate Student t), so that a shape the series can't follow widens the bound. Now and
then a value lies a whole publication beside the grid: such an interval says nothing of the others, and widens the bound
where it is part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pybench.compute.energy.anchors import Anchors
from pybench.compute.energy.curve import Curve
from pybench.compute.energy.times import Column

LAGS_S = np.arange(-20e-3, 60e-3, 0.5e-3)
# Counter and series agreed to 0.15 % over 3 s.
GAIN_SPREAD = 3e-3
GAIN_FREEDOM = 3.0
# Weight of the expected scale against the data's, in intervals.
SCALE_FREEDOM = 4.0
DIGIT_J2 = 1e-6
# An interval this many times as far off as half of them, in variances, has a value that is misplaced. Of three good
# ones the farthest is off by up to six variances.
OUTLIER_TIMES = 25.0
WORST_OF_THREE = 6.0
# The power at a moment is told by the series around it.
POWER_SPAN_S = 40e-3


@dataclass(frozen=True)
class Belief:
    """Joules at each asked time, for every hypothesis: one row a hypothesis. Variances in J².

    The times are windows' starts and ends in turn; ``within_j2`` is the variance of the joules within all windows.
    """

    weight: Column
    energy_j: Column
    variance_j2: Column
    within_j2: Column

    def mean_j(self) -> Column:
        """Expected joules at each time."""
        return np.asarray(self.weight @ self.energy_j)

    def sigma_j(self, which: int) -> float:
        """Standard deviation of the joules at one time."""
        off_j = self.energy_j[:, which] - self.mean_j()[which]
        return float(np.sqrt(self.weight @ (self.variance_j2[:, which] + off_j**2)))

    def within(self) -> tuple[float, float]:
        """Joules within all windows, and their standard deviation."""
        energy_j = (self.energy_j[:, 1::2] - self.energy_j[:, ::2]).sum(axis=1)
        mean_j = float(self.weight @ energy_j)
        return mean_j, float(np.sqrt(self.weight @ (self.within_j2 + (energy_j - mean_j) ** 2)))


@dataclass(frozen=True)
class _Intervals:
    """Between neighbouring anchors, one row a lag. ``value_j2`` is each anchor's variance, ``spent_j2`` the series'."""

    at_s: Column
    value_j2: Column
    spent_j2: Column

    @property
    def whole_j2(self) -> Column:
        return np.asarray(self.spent_j2 + self.value_j2[:, :-1] + self.value_j2[:, 1:])

    def scaled(self, scale: Column, suspicion: Column) -> _Intervals:
        """The same with the series' variances times ``scale``, and values' times the ``suspicion`` beside them."""
        beside = np.pad(suspicion, ((0, 0), (1, 1)))
        of_values = np.maximum(np.maximum(beside[:, 1:], beside[:, :-1]), 1.0)
        return replace(self, value_j2=self.value_j2 * of_values, spent_j2=self.spent_j2 * scale)


def bridge(
    hypotheses: Sequence[tuple[Anchors, float]], curve: Curve, times_s: Column, least_scale: float = 0.0
) -> Belief:
    """The counter's joules at each time, windows' starts and ends in turn; anchors come with the weight of their grid.

    Variances are never scaled below ``least_scale``: a curve made of the counter itself can't vouch for its own shape.
    """
    parts = [_of_anchors(anchors, weight, curve, times_s, least_scale) for anchors, weight in hypotheses]
    log_weight, energy_j, variance_j2, within_j2 = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    weight = np.exp(log_weight - log_weight.max())
    return Belief(weight / weight.sum(), energy_j, variance_j2, within_j2)


def _of_anchors(
    anchors: Anchors, weight: float, curve: Curve, times_s: Column, least_scale: float
) -> tuple[Column, Column, Column, Column]:
    """One row a lag: log of its weight, joules and variances at the times, variance within the windows."""
    at_s = anchors.time_s - LAGS_S[:, None]
    told_j, doubt_j2 = curve.at(at_s), curve.variance_at(at_s)
    spent_j = np.diff(told_j, axis=1)
    intervals = _Intervals(at_s, _value_j2(anchors, curve, at_s), np.diff(doubt_j2, axis=1) + DIGIT_J2)
    counted_j, whole_j2 = np.diff(anchors.energy_j), intervals.whole_j2
    gain = _gain(counted_j.sum(), spent_j.sum(axis=1), whole_j2.sum(axis=1))[:, None]
    excess_j = counted_j - gain * spent_j

    freedom = SCALE_FREEDOM + len(counted_j)
    off = excess_j**2 / whole_j2
    misfit = SCALE_FREEDOM + np.sum(_without_outliers(off), axis=1)
    log_weight = -freedom / 2 * np.log(misfit) - np.sum(np.log(whole_j2), axis=1) / 2
    log_weight += np.log(weight) - GAIN_FREEDOM * np.log1p(((gain[:, 0] - 1) / GAIN_SPREAD) ** 2 / GAIN_FREEDOM)
    suspicion = _with_neighbours(off) / WORST_OF_THREE
    scale = np.maximum(np.maximum(misfit / freedom, least_scale)[:, None], suspicion)

    intervals = intervals.scaled(scale, suspicion)
    which = np.clip((at_s[:, :, None] <= times_s).sum(axis=1) - 1, 0, len(counted_j) - 1)
    row = np.arange(len(LAGS_S))[:, None]
    since_j2 = scale[row, which] * (curve.variance_at(times_s) - doubt_j2[row, which])
    whole_j2, spent_j2 = intervals.whole_j2[row, which], intervals.spent_j2[row, which]
    share = (intervals.value_j2[row, which] + np.clip(since_j2, 0.0, spent_j2)) / whole_j2
    since_j = gain * (curve.at(times_s) - told_j[row, which])
    energy_j = anchors.energy_j[which] + since_j + share * excess_j[row, which]
    # Outside all anchors nothing ties the far end.
    outside_j2 = np.maximum(-since_j2, 0.0) + np.maximum(since_j2 - spent_j2, 0.0)
    variance_j2 = whole_j2 * share * (1 - share) + outside_j2
    return log_weight, energy_j, variance_j2, _within_j2(intervals, doubt_j2, scale, curve, times_s)


def _within_j2(intervals: _Intervals, doubt_j2: Column, scale: Column, curve: Curve, times_s: Column) -> Column:
    """Variance of the joules within all windows: what is unknown of the part of each interval that they take."""
    ends_j2 = curve.variance_at(times_s)
    taken_j2 = np.cumsum(np.diff(ends_j2, prepend=ends_j2[0]) * (np.arange(len(times_s)) % 2))
    at_anchors_j2 = np.interp(doubt_j2, ends_j2, taken_j2)
    spanned_j2 = intervals.value_j2 * (np.searchsorted(times_s, intervals.at_s) % 2)
    part_j2 = scale * np.diff(at_anchors_j2, axis=1) + spanned_j2[:, :-1] + spanned_j2[:, 1:]
    unknown_j2 = np.sum(part_j2 * (1 - np.minimum(part_j2 / intervals.whole_j2, 1.0)), axis=1)
    before_j2, after_j2 = scale[:, 0] * at_anchors_j2[:, 0], scale[:, -1] * (taken_j2[-1] - at_anchors_j2[:, -1])
    return np.asarray(unknown_j2 + before_j2 + after_j2)


def _without_outliers(off: Column) -> Column:
    """Squares of what intervals are off by, one row a lag, none of them beyond all proportion to the others."""
    return np.minimum(off, OUTLIER_TIMES * np.maximum(np.median(off, axis=1), 1.0)[:, None])


def _with_neighbours(off: Column) -> Column:
    """The greatest of each interval and those beside it: a misplaced value is part of two."""
    beside = np.pad(off, ((0, 0), (1, 1)))
    return np.maximum(np.maximum(beside[:, :-2], beside[:, 2:]), off)


def _value_j2(anchors: Anchors, curve: Curve, at_s: Column) -> Column:
    """Variance of each counter value, by the doubt about when it was published."""
    around_s = np.array([-POWER_SPAN_S, POWER_SPAN_S]) / 2
    power_w = np.diff(curve.at(at_s[:, :, None] + around_s), axis=2)[:, :, 0] / POWER_SPAN_S
    return np.asarray((power_w * anchors.blur_s) ** 2)


def _gain(counted_j: float, told_j: Column, told_j2: Column) -> Column:
    """Counter over series, drawn to 1 as far as the series' own doubt goes."""
    told_j = np.maximum(told_j, 1e-9)
    trust = GAIN_SPREAD**2 / (GAIN_SPREAD**2 + told_j2 / told_j**2)
    return np.asarray(1 + (counted_j / told_j - 1) * trust)
