"""Joules of a window, from whatever the trace has.

The counter is the authority for the sum, the driver's series for the shape between its publications and at the
window's ends; then the counter alone; then the series alone; then the polled average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pybench.compute.energy.anchors import Anchors, evenest, on_grid, without_grid
from pybench.compute.energy.bridge import GAIN_SPREAD, Belief, bridge
from pybench.compute.energy.curve import Curve
from pybench.compute.energy.grid import MIN_CHANGES, Grid, candidate_grids
from pybench.compute.energy.readings import Readings
from pybench.compute.energy.series import Samples, series_curve

Method = Literal["counter+series", "counter", "series", "polled", "none"]

# Readings and samples this near an end of the window tell its lag and shape; the second where the counter is read so
# seldom that no reading lies on each side within the first.
REACHES_S = (30.0, 65.0)
# So many readings tell the grid even where all of them are near.
MOST_READINGS = 2000
# Inside a publication the counter alone does not say when the energy was spent.
UNSHAPED_DOUBT = 0.35
# A window may end a little past the last publication where the series goes on.
OVERHANG_S = 0.25
MIN_SAMPLES = 2
# The polled average trails by up to its own span.
AVERAGE_SPAN_S = 1.0


@dataclass(frozen=True)
class Estimate:
    """Joules of a window with their standard deviation, and how they were found.

    ``gap`` says that nothing was read for longer than :data:`~pybench.compute.energy.curve.GAP_S`.
    """

    energy_j: float
    sigma_j: float
    method: Method
    num_publications: int = 0
    gap: bool = False


def counter_estimate(readings: Readings, samples: Samples, length_s: float) -> Estimate | None:
    """By the counter, shaped by the series where that covers the ends; ``None`` unless it spans the window.

    The ends of a long window are told apart: what lies far from both matters to neither.
    """
    ends = [(0.0, length_s)] if length_s <= 2 * REACHES_S[0] else [(0.0, 0.0), (length_s, length_s)]
    near = [found for end in ends if (found := _near(readings, samples, *end)) is not None]
    shapes = [shape for _, shape in near if shape is not None]
    shaped = len(shapes) == len(ends)
    changes_s = readings.after_s[readings.changes]
    if len(near) < len(ends) or (not shaped and (changes_s[0] > 0 or changes_s[-1] < length_s)):
        return None
    grids = candidate_grids(readings if len(readings.after_s) <= MOST_READINGS else near[0][0])
    beliefs = [
        _belief(close, grids, shape if shaped else None, *end) for (close, shape), end in zip(near, ends, strict=True)
    ]
    energy_j, sigma_j = beliefs[0].between() if len(beliefs) == 1 else _across(*beliefs)
    if shaped and len(beliefs) == 1:
        sigma_j = float(np.hypot(sigma_j, shapes[0].shared_sigma_j(0.0, length_s)))
    num_inside = int(np.sum((changes_s > 0) & (changes_s <= length_s)))
    method: Method = "counter+series" if shaped else "counter"
    return Estimate(energy_j, sigma_j, method, num_inside, shaped and samples.have_gap(0.0, length_s))


def series_estimate(samples: Samples, length_s: float) -> Estimate | None:
    """By the series alone, whose gain is known less well than its shape; ``None`` unless it spans the window."""
    curve = series_curve(samples, 0.0, length_s)
    if curve is None or not curve.covers(0.0, length_s):
        return None
    energy_j = float(np.diff(curve.at([0.0, length_s]))[0])
    variance_j2 = float(np.diff(curve.variance_at([0.0, length_s]))[0])
    doubts_j = (np.sqrt(variance_j2), GAIN_SPREAD * energy_j, curve.shared_sigma_j(0.0, length_s))
    sigma_j = float(np.linalg.norm(doubts_j))
    return Estimate(energy_j, sigma_j, "series", gap=curve.has_gap(0.0, length_s))


def polled_estimate(averages: Samples, length_s: float) -> Estimate | None:
    """By the polled average, which trails by up to a second; ``None`` unless it spans the window."""
    time_s, average_w = averages.time_s, averages.power_w
    if len(time_s) < MIN_SAMPLES or time_s[0] > 0 or time_s[-1] < length_s:
        return None
    pieces_j = np.diff(time_s) * (average_w[1:] + average_w[:-1]) / 2
    curve = Curve.of_pieces(time_s, pieces_j, np.zeros_like(pieces_j))
    energy_j = float(np.diff(curve.at([0.0, length_s]))[0])
    lately_w = average_w[(time_s >= -AVERAGE_SPAN_S) & (time_s <= length_s + AVERAGE_SPAN_S)]
    sigma_j = float(np.hypot(np.ptp(lately_w) * AVERAGE_SPAN_S / 2, GAIN_SPREAD * energy_j))
    return Estimate(energy_j, sigma_j, "polled", gap=curve.has_gap(0.0, length_s))


def _near(readings: Readings, samples: Samples, start_s: float, end_s: float) -> tuple[Readings, Curve | None] | None:
    """The readings around the ends, and the shape there; ``None`` where the counter was read on one side only."""
    for reach_s in REACHES_S:
        near = readings.near(start_s - reach_s, end_s + reach_s)
        changes_s = near.after_s[near.changes]
        if (
            len(changes_s) >= MIN_CHANGES
            and changes_s[0] <= start_s + OVERHANG_S
            and changes_s[-1] >= end_s - OVERHANG_S
        ):
            curve = series_curve(samples.near(start_s - reach_s, end_s + reach_s), start_s, end_s)
            return near, curve if curve is not None and curve.covers(start_s, end_s) else None
    return None


def _belief(near: Readings, grids: Sequence[Grid], shape: Curve | None, start_s: float, end_s: float) -> Belief:
    placed = [(anchors, grid) for grid in grids if (anchors := on_grid(near, grid)) is not None]
    hypotheses = [(anchors, grid.weight) for anchors, grid in placed] or [(without_grid(near), 1.0)]
    ends_s = np.array([start_s, end_s])
    if shape is not None:
        return bridge(hypotheses, shape, ends_s)
    anchors = evenest(placed)[0] if placed else hypotheses[0][0]
    return bridge([(anchors, 1.0)], _unshaped(anchors), ends_s, least_scale=1.0)


def _unshaped(anchors: Anchors) -> Curve:
    pieces_j = np.diff(anchors.energy_j)
    return Curve.of_pieces(anchors.time_s, pieces_j, UNSHAPED_DOUBT * pieces_j)


def _across(first: Belief, last: Belief) -> tuple[float, float]:
    sigma_j = float(np.hypot(first.sigma_j(0), last.sigma_j(0)))
    return float(last.mean_j()[0] - first.mean_j()[0]), sigma_j
