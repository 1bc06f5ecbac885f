"""Energy over time, with how far it may be off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.energy.ripple import Ripple
from pybench.power.energy.times import Column

Windows = Sequence[tuple[float, float]]
"""Starts and ends in seconds, one window after the other."""

GAP_S = 0.3
# Beyond its ends a curve goes on at its last power, doubted by this part of what the power ranged over lately.
EXTENSION_S = 0.1
EXTENSION_DOUBT = 0.3
EXTENSION_FLOOR = 0.01
LATELY = 25
# Of several windows each begins and ends alike, as at the pauses between steps: so much of the doubt about the pieces
# there adds up. With 0.25, 95.5 % of simulated prefills and decodes of five steps were inside, with 0.5 98.5 %.
ENDS_ALIKE = 0.5


@dataclass(frozen=True)
class Curve:
    """Joules at each time since some moment, and the variance of that sum in J², both piecewise linear but for ripples.

    Variance grows with time, fast where the shape is unresolved: between two times, the difference of the variances
    is the variance of the energy between them. All times may be early or late together by about ``shift_s``.

    ``sampled_j2`` is the variance, and ``coherent_j`` the size, of what a counter that adds up samples misses at the
    load's jumps: the first where jumps come at any phase of its samples, the second where they keep one.
    ``counted_j2`` is the variance of what it misses of the load's own noise.
    ``unresolved_j`` is what samples leave open of peaks shorter than their spacing, where all are alike and keep step,
    ``repeated_j2`` the variance of what they miss alike for a time, and ``in_step_j`` all that they may miss of a load
    in step with them. All are sums since the curve's zero.

    Of ripples, ``in_step_w`` is the doubt in W about the mean power that a counter has which adds up samples in step
    with one, ``drifting_j2`` the variance of each of its values where it is nearly in step, and ``mean_sigma_w`` the
    doubt about the series' own mean.

    ``hidden_w`` is how far the series' mean may be off by a load in step with its samples.

    ``seen_w`` is the power at each time behind the low-pass of ``tau_s``, without that of the ripples.
    """

    time_s: Column
    energy_j: Column
    variance_j2: Column
    shift_s: float = 0.0
    ripples: tuple[Ripple, ...] = ()
    sampled_j2: Column | None = None
    counted_j2: Column | None = None
    coherent_j: Column | None = None
    unresolved_j: Column | None = None
    repeated_j2: Column | None = None
    in_step_j: Column | None = None
    seen_w: Column | None = None
    tau_s: float = 0.0
    in_step_w: float = 0.0
    drifting_j2: float = 0.0
    mean_sigma_w: float = 0.0
    hidden_w: float = 0.0

    @classmethod
    def of_pieces(
        cls, time_s: Column, piece_j: Column, piece_sigma_j: Column, shift_s: float = 0.0, **sums: Column
    ) -> Self:
        """A curve through ``time_s`` from the energy of each piece between, extended a little at both ends."""
        power_w = piece_j / (time_s[1:] - time_s[:-1])
        sums_j = np.zeros((2 + len(sums), len(time_s) + 2))
        for end, lately_w, edge_w in ((1, power_w[:LATELY], power_w[0]), (-1, power_w[-LATELY:], power_w[-1])):
            doubt_w = EXTENSION_DOUBT * (lately_w.max() - lately_w.min()) + EXTENSION_FLOOR * edge_w
            sums_j[:2, end] = edge_w * EXTENSION_S, (doubt_w * EXTENSION_S) ** 2
        sums_j[0, 2:-1], sums_j[1, 2:-1] = piece_j, piece_sigma_j**2
        for number, column in enumerate(sums.values(), start=2):
            sums_j[number, 2:-1] = column
        np.cumsum(sums_j, axis=1, out=sums_j)
        knots_s = np.concatenate(([time_s[0] - EXTENSION_S], time_s, [time_s[-1] + EXTENSION_S]))
        return cls(knots_s, sums_j[0], sums_j[1], shift_s, **dict(zip(sums, sums_j[2:], strict=True)))

    def at(self, time_s: npt.ArrayLike) -> Column:
        """Joules since the curve's own zero."""
        at_s = np.asarray(time_s, dtype=np.float64)
        energy_j: Column = _energy.interpolated(self.time_s, (self.energy_j,), at_s)[0]
        for ripple in self.ripples:
            energy_j = energy_j + ripple.energy_j(at_s)
        return energy_j

    def sums_at(self, names: Sequence[str], time_s: npt.ArrayLike) -> Column:
        """The sums of these names at each time, one row each, 0 where the curve has none."""
        at_s = np.asarray(time_s, dtype=np.float64)
        columns = [self._none if (column := getattr(self, name)) is None else column for name in names]
        return _energy.interpolated(self.time_s, columns, at_s)

    @cached_property
    def _none(self) -> Column:
        return np.zeros_like(self.time_s)

    def covers(self, start_s: float, end_s: float) -> bool:
        """Whether the window lies inside the curve, extensions included."""
        return bool(self.time_s[0] <= start_s and end_s <= self.time_s[-1])

    def has_gap(self, windows_s: Windows) -> bool:
        """Whether nothing was measured for ``GAP_S`` somewhere in a window."""
        wide = self.time_s[1:] - self.time_s[:-1] > GAP_S
        return any(
            bool(np.any(wide & (self.time_s[1:] > start_s) & (self.time_s[:-1] < end_s)))
            for start_s, end_s in windows_s
        )

    def ends_in_gap(self, windows_s: Windows) -> bool:
        """Whether a window begins or ends where nothing was measured for ``GAP_S``."""
        piece = self._piece_at(np.ravel(windows_s))
        return bool((self.time_s[piece + 1] - self.time_s[piece] > GAP_S).any())

    def _piece_at(self, time_s: Column) -> npt.NDArray[np.intp]:
        """The piece that each time lies in; beyond an end, the one there."""
        return np.clip(np.searchsorted(self.time_s, time_s, side="right") - 1, 0, len(self.time_s) - 2)

    def shared_sigma_j(self, windows_s: Windows) -> float:
        """Doubt about the energy within windows that no part of the curve has alone.

        How much it changes when all is moved by ``shift_s``, the worse way, what is unknown of ripples' shapes, and
        what many pieces, or the ends of several windows, have alike.
        """
        moved_s = np.array([0.0, -self.shift_s, self.shift_s])[:, None, None] + np.asarray(windows_s)
        ends_j = self.at(moved_s)
        energy_j = (ends_j[..., 1] - ends_j[..., 0]).sum(axis=1).tolist()
        shifted_j = max(abs(moved_j - energy_j[0]) for moved_j in energy_j[1:])
        ripples_j = (2**0.5 * len(windows_s) * ripple.sigma_j for ripple in self.ripples)
        # Both are of what samples miss again and again.
        alike_j = max(self.within("unresolved_j", windows_s), math.sqrt(self.within("repeated_j2", windows_s)))
        return math.hypot(shifted_j, alike_j, self._ends_alike_j(windows_s), *ripples_j)

    def _ends_alike_j(self, windows_s: Windows) -> float:
        """What the pieces at the ends of several windows add to their doubt by being off the same way."""
        if len(windows_s) == 1:
            return 0.0
        piece = self._piece_at(np.ravel(windows_s))
        own_j2 = self.variance_j2[piece + 1] - self.variance_j2[piece]
        together_j2 = float(np.sqrt(own_j2).sum()) ** 2 - float(own_j2.sum())
        return ENDS_ALIKE * math.sqrt(max(together_j2, 0.0))

    def within(self, name: str, windows_s: Windows) -> float:
        """How much one of the sums grows within windows."""
        (ends,) = self.sums_at((name,), windows_s)
        return float((ends[:, 1] - ends[:, 0]).sum())
