"""Joules of a window, or of several together, from whatever the trace has.

The counter is the authority for the sum, the driver's series for the shape between its publications and at the
window's ends; then the counter alone; then the series alone; then the polled average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pybench.power.energy.anchors import Anchors, evenest, on_grid, without_grid
from pybench.power.energy.bridge import bridge, lags_between
from pybench.power.energy.curve import Curve, Windows
from pybench.power.energy.grid import MIN_CHANGES, PublicationGrid, candidate_grids
from pybench.power.energy.readings import Readings
from pybench.power.energy.series import Samples, series_curve
from pybench.power.sensor import SensorModel

Hypothesis = tuple[list[Anchors], float]
"""The counter's values near each curve, placed on one grid, and the grid's weight."""

Method = Literal["counter+series", "counter", "series", "polled", "none"]

# Readings this near an end of the window show when the counter publishes; the second where it is read so seldom that no
# reading lies on each side within the first.
REACHES_S = (30.0, 65.0)
# Samples this near an end of the window, or all of a window no longer than that, give its shape; where the counter was
# not read so near, those up to where it was. A value on each side shows how far the series is off.
SHAPE_REACH_S = 8.0
# A value is of a moment this long before its reading, at most.
VALUE_AGE_S = 1.0
LONG_S = 60.0
# So many readings show the grid even where all of them are near.
MOST_READINGS = 400
# In the beginning of a recording its sampler searches for the grid.
BEGINNING_S = 20.0
# Inside a publication the counter alone does not show when the energy was spent.
UNSHAPED_DOUBT = 0.35
# A window may end a little past the last publication where the series goes on.
OVERHANG_S = 0.25
MIN_SAMPLES = 2
# Without the counter beside it nothing shows how far off the series is: twice what they differed by over 3 s.
LONE_GAIN_SPREAD = 3e-3


@dataclass(frozen=True)
class Estimate:
    """Joules of a window with their standard deviation, and how they were found.

    ``gap``: nothing was read for longer than :data:`~pybench.power.energy.curve.GAP_S`. ``misfit`` is 1 where the
    counter follows the series as well as the sensor model has it, and more where it does not. ``hidden_w`` is how far
    the mean power may be off by a load in step with the samples.
    """

    energy_j: float
    sigma_j: float
    method: Method
    num_publications: int = 0
    gap: bool = False
    misfit: float = 1.0
    hidden_w: float = 0.0


def counter_estimate(
    readings: Readings, samples: Samples, windows_s: Windows, sensor: SensorModel, curve: Curve | None = None
) -> Estimate | None:
    """By the counter, shaped by the series where that covers the ends; ``None`` unless it spans the windows.

    Of a long window the shape is looked at near its ends: what lies far from both matters to neither. Of several
    windows that reach that far, each is estimated by itself, as if all were off the same way.

    ``curve`` is the shape around windows that are not long, where the caller has it.
    """
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    long = end_s - start_s > LONG_S
    if long and len(windows_s) > 1:
        return _sum([counter_estimate(readings, samples, [window], sensor) for window in windows_s])
    ends = [[(start_s, start_s)], [(end_s, end_s)]] if long else [windows_s]
    near = [close for end in ends if (close := _near(readings, end)) is not None]
    if len(near) < len(ends):
        return None
    if long or curve is None:
        shapes = [_shape(readings, samples, end, sensor) for end in ends]
    else:
        shapes = [_covering(curve, windows_s)]
    shaped = all(shape is not None for shape in shapes)
    changes_s = np.concatenate([part.after_s[part.changes] for part in near])
    if not shaped and (changes_s.min() > start_s or changes_s.max() < end_s):
        return None
    curves = [shape for shape in shapes if shape is not None] if shaped else []
    found = _bridged(readings, near, curves, windows_s, sensor)
    if found is None:
        return None
    energy_j, sigma_j, misfit = found
    sigma_j = float(np.linalg.norm([sigma_j, *(curve.shared_sigma_j(_own(windows_s, curve)) for curve in curves)]))
    changes_s = readings.after_s[readings.changes]
    passed = np.searchsorted(changes_s, windows_s, side="right")
    num_inside = int((passed[:, 1] - passed[:, 0]).sum())
    method: Method = "counter+series" if shaped else "counter"
    gap = shaped and not long and samples.have_gap(windows_s)
    hidden_w = max((curve.hidden_w for curve in curves), default=0.0)
    return Estimate(energy_j, sigma_j, method, num_inside, gap, misfit, hidden_w)


def _own(windows_s: Windows, curve: Curve) -> Windows:
    """The windows as far as the curve goes."""
    first_s, last_s = float(curve.time_s[0]), float(curve.time_s[-1])
    return [(min(max(start, first_s), last_s), max(min(end, last_s), first_s)) for start, end in windows_s]


def shape_span_s(readings: Readings | None, start_s: float, end_s: float) -> tuple[float, float]:
    """From where to where samples give the shape of a window."""
    first_s, last_s = start_s - SHAPE_REACH_S, end_s + SHAPE_REACH_S
    if readings is None:
        return first_s, last_s
    seen_s = readings.after_s[readings.changes]
    before_s, after_s = seen_s[seen_s <= start_s], seen_s[seen_s - VALUE_AGE_S >= end_s]
    if len(before_s) and before_s[-1] >= start_s - REACHES_S[0]:
        first_s = min(first_s, float(before_s[-1]) - VALUE_AGE_S)
    if len(after_s) and after_s[0] <= end_s + REACHES_S[0]:
        last_s = max(last_s, float(after_s[0]))
    return first_s, last_s


def _shape(readings: Readings, samples: Samples, windows_s: Windows, sensor: SensorModel) -> Curve | None:
    span_s = shape_span_s(readings, windows_s[0][0], windows_s[-1][1])
    curve = series_curve(samples.near(*span_s), windows_s, sensor)
    return None if curve is None else _covering(curve, windows_s)


def _covering(curve: Curve, windows_s: Windows) -> Curve | None:
    return curve if curve.covers(windows_s[0][0], windows_s[-1][1]) else None


def _bridged(
    readings: Readings, near: Sequence[Readings], curves: Sequence[Curve], windows_s: Windows, sensor: SensorModel
) -> tuple[float, float, float] | None:
    many = len(readings.after_s) > MOST_READINGS
    grids = candidate_grids(near[0], readings.beginning(BEGINNING_S)) if many else candidate_grids(readings)
    by_period: dict[float, Hypothesis] = {}
    for grid in grids:
        if grid.period_s not in by_period and (parts := _placed(near, grid)) is not None:
            by_period[grid.period_s] = (parts, grid.weight)
    hypotheses = list(by_period.values()) or [([without_grid(part) for part in near], 1.0)]
    hypotheses = _covered(hypotheses, curves, windows_s)
    if not hypotheses:
        return None
    lags_s = lags_between(sensor.lag_low_s, sensor.lag_high_s)
    if curves:
        found = bridge(
            hypotheses, curves, windows_s, lags_s, sample_period_s=sensor.period_s if sensor.resolves else None
        )
        return found.energy_j, found.sigma_j, found.misfit
    whole = [(anchors, grid) for grid in grids if (anchors := on_grid(_joined(near), grid)) is not None]
    anchors = evenest(whole)[0] if whole else without_grid(_joined(near))
    found = bridge([([anchors], 1.0)], [_unshaped(anchors)], windows_s, lags_s, least_scale=1.0)
    return found.energy_j, found.sigma_j, 1.0


def _joined(near: Sequence[Readings]) -> Readings:
    columns = zip(*((part.before_s, part.after_s, part.energy_mj) for part in near), strict=True)
    before_s, after_s, energy_mj = (np.concatenate(column) for column in columns)
    return Readings(before_s, after_s, energy_mj)


def _placed(near: Sequence[Readings], grid: PublicationGrid) -> list[Anchors] | None:
    parts = [on_grid(part, grid) for part in near]
    found = [part for part in parts if part is not None]
    return found if len(found) == len(parts) else None


def _covered(hypotheses: list[Hypothesis], curves: Sequence[Curve], windows_s: Windows) -> list[Hypothesis]:
    """The values of moments that the curves cover by every hypothesis; none where a curve has no value.

    Beyond a ripple's samples the same load may go on, not folded, and its shape is not known there: where values on
    both sides of the windows are nearer than that, they alone count.
    """
    for part, curve in enumerate(curves):
        times_s = np.array([anchors[part].time_s for anchors, _ in hypotheses])
        inside = np.all((times_s >= curve.time_s[0]) & (times_s <= curve.time_s[-1]), axis=0)
        if not np.any(inside):
            return []
        if len(curve.ripples) == 1:
            (ripple,) = curve.ripples
            folded = inside & np.all((times_s >= ripple.start_s) & (times_s <= ripple.end_s), axis=0)
            if np.any(times_s[0, folded] <= windows_s[0][0]) and np.any(times_s[0, folded] >= windows_s[-1][1]):
                inside = folded
        for anchors, _ in hypotheses:
            anchors[part] = anchors[part].keep(inside)
    return hypotheses


def series_estimate(curve: Curve | None, windows_s: Windows) -> Estimate | None:
    """By the series alone, whose gain is known less well than its shape; ``None`` unless it spans the windows."""
    if curve is None or not curve.covers(windows_s[0][0], windows_s[-1][1]):
        return None
    energy_j = float(np.sum(np.diff(curve.at(windows_s))))
    variance_j2 = curve.within("variance_j2", windows_s)
    mean_j = curve.mean_sigma_w * float(np.sum(np.diff(windows_s)))
    doubts_j = (np.sqrt(variance_j2), LONE_GAIN_SPREAD * energy_j, curve.shared_sigma_j(windows_s), mean_j)
    sigma_j, gap = float(np.linalg.norm(doubts_j)), curve.has_gap(windows_s)
    return Estimate(energy_j, sigma_j, "series", gap=gap, hidden_w=curve.hidden_w)


def polled_estimate(averages: Samples, windows_s: Windows, sensor: SensorModel) -> Estimate | None:
    """By the polled average, which trails by its span; ``None`` unless it spans the windows."""
    time_s, average_w = averages.time_s, averages.power_w
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    if len(time_s) < MIN_SAMPLES or time_s[0] > start_s or time_s[-1] < end_s:
        return None
    pieces_j = np.diff(time_s) * (average_w[1:] + average_w[:-1]) / 2
    curve = Curve.of_pieces(time_s, pieces_j, np.zeros_like(pieces_j))
    energy_j = float(np.sum(np.diff(curve.at(windows_s))))
    span_s = sensor.average_span_s
    lately_w = average_w[(time_s >= start_s - span_s) & (time_s <= end_s + span_s)]
    trailing_j = len(windows_s) * np.ptp(lately_w) * span_s / 2
    sigma_j = float(np.hypot(trailing_j, LONE_GAIN_SPREAD * energy_j))
    return Estimate(energy_j, sigma_j, "polled", gap=curve.has_gap(windows_s))


def _sum(estimates: Sequence[Estimate | None]) -> Estimate | None:
    known = [estimate for estimate in estimates if estimate is not None]
    if len(known) < len(estimates):
        return None
    return Estimate(
        sum(estimate.energy_j for estimate in known),
        sum(estimate.sigma_j for estimate in known),
        "counter" if any(estimate.method == "counter" for estimate in known) else "counter+series",
        sum(estimate.num_publications for estimate in known),
        any(estimate.gap for estimate in known),
        misfit=max(estimate.misfit for estimate in known),
        hidden_w=max(estimate.hidden_w for estimate in known),
    )


def _near(readings: Readings, windows_s: Windows) -> Readings | None:
    """The readings around the windows; ``None`` where the counter was read on one side only."""
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    for reach_s in REACHES_S:
        near = readings.near(start_s - reach_s, end_s + reach_s)
        changes_s = near.after_s[near.changes]
        if (
            len(changes_s) >= MIN_CHANGES
            and changes_s[0] <= start_s + OVERHANG_S
            and changes_s[-1] >= end_s - OVERHANG_S
        ):
            return near
    return None


def _unshaped(anchors: Anchors) -> Curve:
    pieces_j = np.diff(anchors.energy_j)
    return Curve.of_pieces(anchors.time_s, pieces_j, UNSHAPED_DOUBT * pieces_j)
