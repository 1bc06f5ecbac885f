"""Joules of a window, or of several together, from whatever the trace has.

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
from pybench.compute.energy.curve import Curve, Windows
from pybench.compute.energy.grid import MIN_CHANGES, PublicationGrid, candidate_grids
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


def counter_estimate(readings: Readings, samples: Samples, windows_s: Windows) -> Estimate | None:
    """By the counter, shaped by the series where that covers the ends; ``None`` unless it spans the windows.

    The ends of a long window are told apart: what lies far from both matters to neither. Of several windows that
    reach that far, each is told by itself, as if all were off the same way.
    """
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    long = end_s - start_s > 2 * REACHES_S[0]
    if long and len(windows_s) > 1:
        return _sum([counter_estimate(readings, samples, [window]) for window in windows_s])
    ends = [[(start_s, start_s)], [(end_s, end_s)]] if long else [windows_s]
    near = [found for end in ends if (found := _near(readings, samples, end)) is not None]
    shapes = [shape for _, shape in near if shape is not None]
    shaped = len(shapes) == len(ends)
    changes_s = readings.after_s[readings.changes]
    if len(near) < len(ends) or (not shaped and (changes_s[0] > start_s or changes_s[-1] < end_s)):
        return None
    grids = candidate_grids(readings if len(readings.after_s) <= MOST_READINGS else near[0][0])
    beliefs = [
        _belief(close, grids, shape if shaped else None, end) for (close, shape), end in zip(near, ends, strict=True)
    ]
    energy_j, sigma_j = beliefs[0].within() if len(beliefs) == 1 else _across(*beliefs)
    if shaped and len(beliefs) == 1:
        sigma_j = float(np.hypot(sigma_j, shapes[0].shared_sigma_j(windows_s)))
    num_inside = sum(int(np.sum((changes_s > first_s) & (changes_s <= last_s))) for first_s, last_s in windows_s)
    method: Method = "counter+series" if shaped else "counter"
    return Estimate(energy_j, sigma_j, method, num_inside, shaped and samples.have_gap(windows_s))


def series_estimate(samples: Samples, windows_s: Windows) -> Estimate | None:
    """By the series alone, whose gain is known less well than its shape; ``None`` unless it spans the windows."""
    curve = series_curve(samples, windows_s)
    if curve is None or not curve.covers(windows_s[0][0], windows_s[-1][1]):
        return None
    energy_j = float(np.sum(np.diff(curve.at(windows_s))))
    variance_j2 = float(np.sum(np.diff(curve.variance_at(windows_s))))
    doubts_j = (np.sqrt(variance_j2), GAIN_SPREAD * energy_j, curve.shared_sigma_j(windows_s))
    return Estimate(energy_j, float(np.linalg.norm(doubts_j)), "series", gap=curve.has_gap(windows_s))


def polled_estimate(averages: Samples, windows_s: Windows) -> Estimate | None:
    """By the polled average, which trails by up to a second; ``None`` unless it spans the windows."""
    time_s, average_w = averages.time_s, averages.power_w
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    if len(time_s) < MIN_SAMPLES or time_s[0] > start_s or time_s[-1] < end_s:
        return None
    pieces_j = np.diff(time_s) * (average_w[1:] + average_w[:-1]) / 2
    curve = Curve.of_pieces(time_s, pieces_j, np.zeros_like(pieces_j))
    energy_j = float(np.sum(np.diff(curve.at(windows_s))))
    lately_w = average_w[(time_s >= start_s - AVERAGE_SPAN_S) & (time_s <= end_s + AVERAGE_SPAN_S)]
    trailing_j = len(windows_s) * np.ptp(lately_w) * AVERAGE_SPAN_S / 2
    sigma_j = float(np.hypot(trailing_j, GAIN_SPREAD * energy_j))
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
    )


def _near(readings: Readings, samples: Samples, windows_s: Windows) -> tuple[Readings, Curve | None] | None:
    """The readings around the windows, and the shape there; ``None`` where the counter was read on one side only."""
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    for reach_s in REACHES_S:
        near = readings.near(start_s - reach_s, end_s + reach_s)
        changes_s = near.after_s[near.changes]
        if (
            len(changes_s) >= MIN_CHANGES
            and changes_s[0] <= start_s + OVERHANG_S
            and changes_s[-1] >= end_s - OVERHANG_S
        ):
            curve = series_curve(samples.near(start_s - reach_s, end_s + reach_s), windows_s)
            return near, curve if curve is not None and curve.covers(start_s, end_s) else None
    return None


def _belief(near: Readings, grids: Sequence[PublicationGrid], shape: Curve | None, windows_s: Windows) -> Belief:
    placed = [(anchors, grid) for grid in grids if (anchors := on_grid(near, grid)) is not None]
    hypotheses = [(anchors, grid.weight) for anchors, grid in placed] or [(without_grid(near), 1.0)]
    ends_s = np.ravel(windows_s)
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
