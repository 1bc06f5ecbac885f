"""Energy over time, with how far it may be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.ripple import Ripple
from pybench.compute.energy.times import Column

Windows = Sequence[tuple[float, float]]
"""Starts and ends in seconds, one window after the other."""

GAP_S = 0.3
# Beyond its ends a curve goes on at its last power, doubted by this part of what the power ranged over lately.
EXTENSION_S = 0.1
EXTENSION_DOUBT = 0.3
EXTENSION_FLOOR = 0.01
LATELY = 25


@dataclass(frozen=True)
class Curve:
    """Joules at each time since some moment, and the variance of that sum in J², both piecewise linear but for ripples.

    Variance grows with time, fast where the shape is unresolved: between two times, the difference of the variances
    is the variance of the energy between them. All times may be early or late together by about ``shift_s``.
    """

    time_s: Column
    energy_j: Column
    variance_j2: Column
    shift_s: float = 0.0
    ripples: tuple[Ripple, ...] = ()

    @classmethod
    def of_pieces(cls, time_s: Column, piece_j: Column, piece_sigma_j: Column, shift_s: float = 0.0) -> Self:
        """A curve through ``time_s`` from the energy of each piece between, extended a little at both ends."""
        power_w = piece_j / np.diff(time_s)
        ends_j, ends_sigma_j = [], []
        for lately_w, edge_w in ((power_w[:LATELY], power_w[0]), (power_w[-LATELY:], power_w[-1])):
            ends_j.append(edge_w * EXTENSION_S)
            ends_sigma_j.append((EXTENSION_DOUBT * np.ptp(lately_w) + EXTENSION_FLOOR * edge_w) * EXTENSION_S)
        knots_s = np.concatenate(([time_s[0] - EXTENSION_S], time_s, [time_s[-1] + EXTENSION_S]))
        energy_j = np.concatenate(([0.0, ends_j[0]], piece_j, [ends_j[1]]))
        sigma_j = np.concatenate(([0.0, ends_sigma_j[0]], piece_sigma_j, [ends_sigma_j[1]]))
        return cls(knots_s, np.cumsum(energy_j), np.cumsum(sigma_j**2), shift_s)

    def at(self, time_s: npt.ArrayLike) -> Column:
        """Joules since the curve's own zero."""
        smooth_j = np.interp(np.asarray(time_s), self.time_s, self.energy_j)
        return np.asarray(sum((ripple.energy_j(np.asarray(time_s)) for ripple in self.ripples), smooth_j))

    def variance_at(self, time_s: npt.ArrayLike) -> Column:
        """Variance in J² since the curve's own zero."""
        return np.asarray(np.interp(np.asarray(time_s), self.time_s, self.variance_j2))

    def covers(self, start_s: float, end_s: float) -> bool:
        """Whether the window lies inside the curve, extensions included."""
        return bool(self.time_s[0] <= start_s and end_s <= self.time_s[-1])

    def has_gap(self, windows_s: Windows) -> bool:
        """Whether nothing was measured for ``GAP_S`` somewhere in a window."""
        wide = np.diff(self.time_s) > GAP_S
        return any(
            bool(np.any(wide & (self.time_s[1:] > start_s) & (self.time_s[:-1] < end_s)))
            for start_s, end_s in windows_s
        )

    def shared_sigma_j(self, windows_s: Windows) -> float:
        """Doubt about the energy within windows that no part of the curve has alone.

        How much it changes when all is moved by ``shift_s``, the worse way, and what is unknown of ripples' shapes.
        """
        moved_s = np.array([0.0, -self.shift_s, self.shift_s])[:, None, None] + np.asarray(windows_s)
        energy_j = np.sum(np.diff(self.at(moved_s)), axis=(1, 2))
        shifted_j = np.max(np.abs(energy_j - energy_j[0]))
        ripples_j = (np.sqrt(2) * len(windows_s) * ripple.sigma_j for ripple in self.ripples)
        return float(np.linalg.norm([shifted_j, *ripples_j]))
