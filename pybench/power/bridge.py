"""Joules by the counter: its sums joined with the series' shape.

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
from typing import Literal

import numpy as np

from pybench import _energy
from pybench.power.counter import MIN_CHANGES, Anchors, Hypotheses, Readings, candidate_grids, placed, without_grid
from pybench.power.curve import UNKNOWN_PART, Curve, series_curve
from pybench.power.samples import Column, Samples, Windows, samples_of
from pybench.power.sensor import UNKNOWN_SENSOR, SensorModel
from pybench.power.trace import GpuTrace, OffsetColumns

Method = Literal["counter+series", "counter", "series", "polled", "none"]

# Readings within this of a window, in s, determine the counter's grid: the counter is read once a minute.
REACH_S = 65.0
# Samples within this of an end of the window give its shape, in s; more if the counter was read farther away, at most.
SHAPE_REACH_S, FARTHEST_SHAPE_S = 8.0, 30.0
# A counter value is at most this old when it is read, in s.
VALUE_AGE_S = 1.0
# A longer window uses only the samples near its ends: the middle cancels.
LONG_S = 60.0


@dataclass(frozen=True)
class WindowEnergy:
    """Joules with their standard deviation.

    Attributes:
        gap: more than ``GAP_S`` of the windows lack samples.
        misfit: observed over modelled variance of the counter less the series.
        hidden_w: possible error of the mean power by a load in step with the samples.
    """

    energy_j: float
    sigma_j: float
    method: Method
    num_publications: int = 0
    gap: bool = False
    misfit: float = 1.0
    hidden_w: float = 0.0


@dataclass(frozen=True)
class Window:
    """One GPU's data around the windows, in seconds since the first window's start.

    ``readings`` is ``None`` if the counter fell within the windows.
    """

    spans_s: Windows
    readings: Readings | None
    samples: Samples
    sensor: SensorModel

    @property
    def start_s(self) -> float:
        """Start of the first span."""
        return self.spans_s[0][0]

    @property
    def end_s(self) -> float:
        """End of the last span."""
        return self.spans_s[-1][1]

    @property
    def length_s(self) -> float:
        """Sum of the spans' lengths."""
        return sum(end_s - start_s for start_s, end_s in self.spans_s)

    @property
    def is_long(self) -> bool:
        """Whether only the samples near both ends are used."""
        return self.end_s - self.start_s > LONG_S


def cut_window(gpu: GpuTrace, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]]) -> Window:
    """The data of one GPU around windows: of a long one around its ends."""
    origin_ns = windows_ns[0][0]
    spans_s = [((start_ns - origin_ns) / 1e9, (end_ns - origin_ns) / 1e9) for start_ns, end_ns in windows_ns]
    readings = Readings.of(gpu.counter, origin_ns).without_resets(0.0, spans_s[-1][1])
    start_s, end_s = spans_s[0][0], spans_s[-1][1]
    if end_s - start_s <= LONG_S:
        near_s = [_shape_span_s(readings, start_s, end_s)]
    else:
        ends_s = spans_s if len(spans_s) > 1 else [(at_s, at_s) for at_s in (start_s, end_s)]
        near_s = [_shape_span_s(readings, *end) for end in ends_s]
    samples = samples_of(gpu.series, offsets, origin_ns, near_s)
    return Window(spans_s, readings, samples, gpu.sensor or UNKNOWN_SENSOR)


def _shape_span_s(readings: Readings | None, start_s: float, end_s: float) -> tuple[float, float]:
    """Span of the samples that give the shape: up to the nearest counter values, but at least ``SHAPE_REACH_S``."""
    first_s, last_s = start_s - SHAPE_REACH_S, end_s + SHAPE_REACH_S
    if readings is None:
        return first_s, last_s
    seen_s = readings.after_s[readings.changes]
    before_s, after_s = seen_s[seen_s <= start_s], seen_s[seen_s - VALUE_AGE_S >= end_s]
    if len(before_s) and before_s[-1] >= start_s - FARTHEST_SHAPE_S:
        first_s = min(first_s, float(before_s[-1]) - VALUE_AGE_S)
    if len(after_s) and after_s[0] <= end_s + FARTHEST_SHAPE_S:
        last_s = max(last_s, float(after_s[0]))
    return first_s, last_s


# With more readings, the first 20 s give the grid's period: the sampler searches for it then.
MOST_READINGS = 400
BEGINNING_S = 20.0
# Standard deviation of the energy between two publications without a series, as a fraction.
UNSHAPED_SPREAD = 0.35
# A window may end this far past the last publication, in s.
OVERHANG_S = 0.25


def estimate_by_counter(window: Window, curve: Curve | None) -> WindowEnergy | None:
    """By the counter, shaped by the series if ``curve`` covers the ends; ``None`` unless readings span the windows.

    Several long windows are estimated one by one, and their standard deviations added.
    """
    readings = window.readings
    if readings is None:
        return None
    if window.is_long and len(window.spans_s) > 1:
        parts = [Window([span], readings, window.samples, window.sensor) for span in window.spans_s]
        return _sum([estimate_by_counter(part, None) for part in parts])
    start_s, end_s, sensor = window.start_s, window.end_s, window.sensor
    ends: list[Windows] = [[(start_s, start_s)], [(end_s, end_s)]] if window.is_long else [window.spans_s]
    near, shapes = [], []
    for end in ends:
        if (close := _near(readings, end)) is None:
            return None
        near.append(close)
        first_s, last_s = _shape_span_s(readings, end[0][0], end[-1][1])
        shape = curve or series_curve(window.samples.near(first_s, last_s), end, sensor)
        if shape and shape.covers(end):
            shapes.append(shape)
    shaped = len(shapes) == len(ends)
    if shaped:
        many = len(readings.after_s) > MOST_READINGS
        grids = candidate_grids(near[0], readings.beginning(BEGINNING_S)) if many else candidate_grids(readings)
        hypotheses = placed(near, grids)
        if not _keep_covered(hypotheses, shapes, window.spans_s):
            return None
    else:  # straight lines between the counter's own values
        anchors = without_grid(readings)
        if anchors.time_s[0] > start_s or anchors.time_s[-1] < end_s:
            return None
        pieces_j = np.diff(anchors.energy_j)
        hypotheses, shapes = [([anchors], 1.0)], [Curve.of_pieces(anchors.time_s, pieces_j, UNSHAPED_SPREAD * pieces_j)]
    lags_s = (sensor.lag_low_s, sensor.lag_high_s)
    energy_j, sigma_j, misfit = bridge(hypotheses, shapes, window.spans_s, lags_s, LEAST_SCALE if shaped else 1.0)
    shared_j = []
    for each in shapes if shaped else ():
        inside_s = np.clip(window.spans_s, each.time_s[0], each.time_s[-1])
        shared_j.append(each.shared_sigma_j(inside_s.tolist()))
    passed = np.searchsorted(readings.after_s[readings.changes], window.spans_s, side="right")
    return WindowEnergy(
        energy_j,
        float(np.linalg.norm([sigma_j, *shared_j])),
        "counter+series" if shaped else "counter",
        num_publications=int((passed[:, 1] - passed[:, 0]).sum()),
        gap=shaped and not window.is_long and window.samples.have_gap(window.spans_s),
        misfit=misfit if shaped else 1.0,
        hidden_w=max((shape.hidden_w for shape in shapes), default=0.0),
    )


def _near(readings: Readings, windows_s: Windows) -> Readings | None:
    """The readings around windows; ``None`` if the counter was read on one side only."""
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    near = readings.near(start_s - REACH_S, end_s + REACH_S)
    ends_s = near.after_s[near.changes[[0, -1]]] if len(near.changes) >= MIN_CHANGES else (np.inf, -np.inf)
    return near if ends_s[0] <= start_s + OVERHANG_S and ends_s[1] >= end_s - OVERHANG_S else None


def _keep_covered(hypotheses: Hypotheses, curves: Sequence[Curve], windows_s: Windows) -> bool:
    """Keep the anchors that the curves cover by every hypothesis; False if a curve has none.

    The shape of a periodic load is unknown outside its folded samples. If anchors within them enclose the windows,
    only these are used.
    """
    for part, curve in enumerate(curves):
        times_s = np.array([anchors[part].time_s for anchors, _ in hypotheses])
        inside = np.all((times_s >= curve.time_s[0]) & (times_s <= curve.time_s[-1]), axis=0)
        if not np.any(inside):
            return False
        if len(curve.ripples) == 1:
            (ripple,) = curve.ripples
            folded = inside & np.all((times_s >= ripple.start_s) & (times_s <= ripple.end_s), axis=0)
            if np.any(times_s[0, folded] <= windows_s[0][0]) and np.any(times_s[0, folded] >= windows_s[-1][1]):
                inside = folded
        for anchors, _ in hypotheses:
            anchors[part] = anchors[part].keep(inside)
    return True


def _sum(estimates: Sequence[WindowEnergy | None]) -> WindowEnergy | None:
    known = [estimate for estimate in estimates if estimate is not None]
    if len(known) < len(estimates):
        return None
    return WindowEnergy(
        energy_j=sum(estimate.energy_j for estimate in known),
        sigma_j=sum(estimate.sigma_j for estimate in known),
        method="counter" if any(estimate.method == "counter" for estimate in known) else "counter+series",
        num_publications=sum(estimate.num_publications for estimate in known),
        gap=any(estimate.gap for estimate in known),
        misfit=max(estimate.misfit for estimate in known),
        hidden_w=max(estimate.hidden_w for estimate in known),
    )


# Standard deviation of how far a load is in step with the counter's sampling; 1 is fully.
STEP_SPREAD = 0.75
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


def bridge(
    hypotheses: Hypotheses, curves: Sequence[Curve], windows_s: Windows, lags_s: tuple[float, float], least_scale: float
) -> tuple[float, float, float]:
    """Joules within the windows, their standard deviation, and the misfit: 1 as expected, more is worse.

    Args:
        hypotheses: anchors by each grid.
        curves: the series around the windows, or at both ends of a long one.
        windows_s: the windows.
        lags_s: shortest and longest lag of the counter.
        least_scale: variances are never scaled below this; 1 for a curve made of the counter itself.
    """
    ends_s = np.ravel(windows_s)
    lags_tried_s = np.arange(lags_s[0], lags_s[1] + LAG_STEP_S / 2, LAG_STEP_S)
    first_j = hypotheses[0][0][0].energy_j[0]
    by_curve = zip(curves, *(anchors for anchors, _ in hypotheses), strict=True)
    inputs = [_filter_input(curve, by_grid, first_j, ends_s, lags_tried_s) for curve, *by_grid in by_curve]
    columns, gain_spreads, before, after = zip(*inputs, strict=True)
    beyond_j, beyond_j2 = (first + last for first, last in zip(before[0], after[-1], strict=True))
    prior = np.repeat([weight for _, weight in hypotheses], len(lags_tried_s))
    log_weight, within_j, variance_j2, misfit = _energy.filtered(
        columns, prior, max(gain_spreads), STEP_SPREAD, beyond_j, beyond_j2
    )
    # The weighted mean over all hypotheses, with the variances scaled by the misfit.
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    scale = np.maximum(misfit, least_scale)
    mean_j = float(weight @ within_j)
    spread_j2 = scale * np.maximum(variance_j2, 0.0) + (within_j - mean_j) ** 2
    return mean_j, float(np.sqrt(weight @ spread_j2)), float(weight @ scale)


def _filter_input(
    curve: Curve, by_grid: Sequence[Anchors], first_j: float, ends_s: Column, lags_tried_s: Column
) -> tuple[tuple[Column, ...], float, tuple[Column, Column], tuple[Column, Column]]:
    """The filter's columns of one curve's values, by every lag with every grid; its gain's standard deviation.

    Then joules within the windows, with their variances, before the first value and after the last one.
    """
    away_s = np.min(np.abs(by_grid[0].time_s[:, None] - ends_s), axis=1)
    nearest = np.sort(np.argsort(away_s, kind="stable")[:MOST_VALUES])
    published_s = np.stack([anchors.time_s[nearest] for anchors in by_grid], axis=1)
    blur_s = np.stack([anchors.blur_s[nearest] for anchors in by_grid], axis=1)
    at_s = (published_s[:, :, None] - lags_tried_s).reshape(len(nearest), -1)
    values_j = by_grid[0].energy_j[nearest] - first_j
    # The series at the values, and the power there, by which an error in time is one in joules.
    half_s = POWER_SPAN_S / 2
    before_j, energy_j, after_j = curve.at(np.stack((at_s - half_s, at_s, at_s + half_s)))
    blurred_j = (after_j - before_j) / POWER_SPAN_S * np.repeat(blur_s, len(lags_tried_s), axis=1)
    series_j2, counted_j2, in_step_j = curve.sums_at(("variance_j2", "counted_j2", "coherent_j"), at_s)
    if curve.in_step_w:
        in_step_j += curve.in_step_w * at_s / STEP_SPREAD
    # Both sums within the windows.
    ends_j, ends_j2 = curve.at(ends_s), curve.sums_at(("variance_j2",), ends_s)[0]
    taken_j, taken_j2 = _energy.within(ends_s, ends_j, at_s, energy_j), _energy.within(ends_s, ends_j2, at_s, series_j2)
    whole_j, whole_j2 = (float((ends[1::2] - ends[::2]).sum()) for ends in (ends_j, ends_j2))
    # From each value to the next: joules by the series, and within the windows, their variances, and the error of a
    # counter in step.
    spent_j, grown_j2 = np.diff(energy_j, axis=0), np.diff(series_j2 + counted_j2, axis=0) + DIGIT_J2
    steps = (spent_j, np.diff(taken_j, axis=0), grown_j2, np.diff(taken_j2, axis=0), np.diff(in_step_j, axis=0))
    columns = (values_j[:, None], blurred_j**2 + DIGIT_J2 + curve.drifting_j2, *steps)
    mean_spread_j = UNKNOWN_PART * curve.in_step_w * float(np.ptp(at_s))
    gain_spread = mean_spread_j / max(spent_j.sum(axis=0).max(), 1e-9)
    return columns, gain_spread, (taken_j[0], taken_j2[0]), (whole_j - taken_j[-1], whole_j2 - taken_j2[-1])
