"""Joules of a window, from whatever the trace has.

The counter is the authority for the sum, the driver's series for the shape between its publications and at the
window's ends; then the counter alone; then the series alone; then the polled average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pybench.compute.energy.anchors import Anchors, evenest, on_grid, without_grid
from pybench.compute.energy.bridge import GAIN_SPREAD, Belief, bridge
from pybench.compute.energy.curve import GAP_S, Curve
from pybench.compute.energy.grid import MIN_CHANGES, candidate_grids
from pybench.compute.energy.readings import Readings
from pybench.compute.energy.series import Samples, series_curve
from pybench.compute.energy.times import Column

Method = Literal["counter+series", "counter", "series", "polled", "none"]

# Readings and samples this near an end of the window tell its grid, lag and shape.
REACH_S = 30.0
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
    changes_s = readings.after_s[readings.changes]
    if len(changes_s) < MIN_CHANGES or changes_s[0] > OVERHANG_S or changes_s[-1] < length_s - OVERHANG_S:
        return None
    ends = [(0.0, length_s)] if length_s <= 2 * REACH_S else [(0.0, 0.0), (length_s, length_s)]
    shapes = [_shape(samples, *end) for end in ends]
    shaped = all(shape is not None for shape in shapes)
    if not shaped and (changes_s[0] > 0 or changes_s[-1] < length_s):
        return None
    beliefs = [_belief(readings, shape if shaped else None, *end) for shape, end in zip(shapes, ends, strict=True)]
    energy_j, sigma_j = beliefs[0].between() if len(beliefs) == 1 else _across(*beliefs)
    if len(beliefs) == 1 and shapes[0] is not None:
        sigma_j = float(np.hypot(sigma_j, shapes[0].shifted_j(0.0, length_s)))
    inside_s = changes_s[(changes_s > 0) & (changes_s <= length_s)]
    gap = bool(np.any(np.diff(np.concatenate(([0.0], inside_s, [length_s]))) > GAP_S))
    return Estimate(energy_j, sigma_j, "counter+series" if shaped else "counter", len(inside_s), gap)


def series_estimate(samples: Samples, length_s: float) -> Estimate | None:
    """By the series alone, whose gain is known less well than its shape; ``None`` unless it spans the window."""
    curve = series_curve(samples)
    if curve is None or not curve.covers(0.0, length_s):
        return None
    energy_j = float(np.diff(curve.at([0.0, length_s]))[0])
    variance_j2 = float(np.diff(curve.variance_at([0.0, length_s]))[0])
    doubts_j = (np.sqrt(variance_j2), GAIN_SPREAD * energy_j, curve.shifted_j(0.0, length_s))
    sigma_j = float(np.linalg.norm(doubts_j))
    return Estimate(energy_j, sigma_j, "series", gap=curve.has_gap(0.0, length_s))


def polled_estimate(time_s: Column, average_w: Column, length_s: float) -> Estimate | None:
    """By the polled average, which trails by up to a second; ``None`` unless it spans the window."""
    if len(time_s) < MIN_SAMPLES or time_s[0] > 0 or time_s[-1] < length_s:
        return None
    pieces_j = np.diff(time_s) * (average_w[1:] + average_w[:-1]) / 2
    curve = Curve.of_pieces(time_s, pieces_j, np.zeros_like(pieces_j))
    energy_j = float(np.diff(curve.at([0.0, length_s]))[0])
    lately_w = average_w[(time_s >= -AVERAGE_SPAN_S) & (time_s <= length_s + AVERAGE_SPAN_S)]
    sigma_j = float(np.hypot(np.ptp(lately_w) * AVERAGE_SPAN_S / 2, GAIN_SPREAD * energy_j))
    return Estimate(energy_j, sigma_j, "polled", gap=curve.has_gap(0.0, length_s))


def _shape(samples: Samples, start_s: float, end_s: float) -> Curve | None:
    curve = series_curve(samples.near(start_s - REACH_S, end_s + REACH_S))
    return curve if curve is not None and curve.covers(start_s, end_s) else None


def _belief(readings: Readings, shape: Curve | None, start_s: float, end_s: float) -> Belief:
    near = readings.near(start_s - REACH_S, end_s + REACH_S)
    placed = [(anchors, grid) for grid in candidate_grids(near) if (anchors := on_grid(near, grid)) is not None]
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
