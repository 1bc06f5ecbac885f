"""Energy over time from the driver's series, with its uncertainty; the sensor's low-pass is undone.

A sample y sees the load behind a first-order low-pass of time constant tau. Over the cell between two samples d apart,
``(y1 - y0·exp(-d/tau)) / (1 - exp(-d/tau))`` is the load's mean weighted by ``exp(-(time to the cell's end)/tau)``: the
load itself if it was steady. A step within a cell, between steady neighbours, follows from the weight in closed form
(subcell resolution, Harten, J. Comput. Phys. 83, 1989). Noise grows by ``sqrt(1 + e²) / (1 - e)``, e = exp(-d/tau). The
extension loops over the cells: ``csrc/low_pass.h``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.in_step import hidden_w, repeats
from pybench.power.ripple import Ripple, find_ripple
from pybench.power.samples import GAP_S, Column, Samples, Windows, median, noise_w, sample_noise_w
from pybench.power.sensor import SensorModel

# A curve extends this far beyond its ends at its last power. Standard deviation of that power: 0.3 of its range over
# the last 25 pieces, plus 1 %.
EXTENSION_S = 0.1
EXTENSION_SPREAD = 0.3
EXTENSION_FLOOR = 0.01
LATELY = 25
# Correlation of the errors at the ends of several windows: steps begin and end alike. With 0.25, 95.5 % of simulated
# prefills and decodes of five steps were inside their bound, with 0.5 98.5 %.
ENDS_ALIKE = 0.5
# Part of harmonics in step that early and late samples leave unknown.
UNKNOWN_PART = 0.75
# Sums over time. Variances: of the series; by alike errors of cells; of a sampling counter, at jumps of any phase and
# by noise of the load. Possible errors: of the counter at jumps of one phase; by a load in step with the samples.
SUMS = ("energy_j", "variance_j2", "repeated_j2", "counted_j2", "coherent_j", "in_step_j")


@dataclass(frozen=True)
class Curve:
    """Sums since some moment by name, see ``SUMS``, linear between ``time_s``.

    The variance of the energy between two times is the difference of the variances.

    Attributes:
        shift_s: standard deviation of a time error common to all.
        ripples: fast periodic loads, folded; their energy is added to the joules.
        in_step_w: standard deviation of the mean power of a counter that samples in step with a ripple. The series
            leaves ``UNKNOWN_PART`` of it open.
        drifting_j2: variance of each counter value by a ripple nearly in step.
        hidden_w: possible error of the series' mean power by a load in step.
    """

    time_s: Column
    sums: dict[str, Column]
    shift_s: float = 0.0
    ripples: tuple[Ripple, ...] = ()
    in_step_w: float = 0.0
    drifting_j2: float = 0.0
    hidden_w: float = 0.0

    @classmethod
    def of_pieces(
        cls, time_s: Column, piece_j: Column, piece_sigma_j: Column, shift_s: float = 0.0, **sums: Column
    ) -> Self:
        """A curve through ``time_s`` from the energy of each piece, extended by ``EXTENSION_S`` at both ends.

        ``sums`` are other sums' growth in each piece, 0 by default.
        """
        power_w = piece_j / (time_s[1:] - time_s[:-1])
        sums |= {"energy_j": piece_j, "variance_j2": piece_sigma_j**2}
        sums_j = np.zeros((len(SUMS), len(time_s) + 2))
        for number, name in enumerate(SUMS):
            sums_j[number, 2:-1] = sums.get(name, 0.0)
        for end, lately_w, edge_w in ((1, power_w[:LATELY], power_w[0]), (-1, power_w[-LATELY:], power_w[-1])):
            sigma_w = EXTENSION_SPREAD * (lately_w.max() - lately_w.min()) + EXTENSION_FLOOR * edge_w
            sums_j[:2, end] = edge_w * EXTENSION_S, (sigma_w * EXTENSION_S) ** 2
        np.cumsum(sums_j, axis=1, out=sums_j)
        knots_s = np.concatenate(([time_s[0] - EXTENSION_S], time_s, [time_s[-1] + EXTENSION_S]))
        return cls(knots_s, dict(zip(SUMS, sums_j, strict=True)), shift_s)

    def at(self, time_s: npt.ArrayLike) -> Column:
        """Joules since the curve's zero."""
        at_s = np.asarray(time_s, dtype=np.float64)
        energy_j: Column = _energy.interpolated(self.time_s, (self.sums["energy_j"],), at_s)[0]
        for ripple in self.ripples:
            energy_j = energy_j + ripple.energy_j(at_s)
        return energy_j

    def sums_at(self, names: Sequence[str], time_s: npt.ArrayLike) -> Column:
        """The sums of these names at each time, one row each."""
        columns = [self.sums[name] for name in names]
        return _energy.interpolated(self.time_s, columns, np.asarray(time_s, dtype=np.float64))

    def within(self, name: str, windows_s: Windows) -> float:
        """Growth of one sum within windows."""
        (ends,) = self.sums_at((name,), windows_s)
        return float((ends[:, 1] - ends[:, 0]).sum())

    def covers(self, windows_s: Windows) -> bool:
        """Whether the curve spans the windows, extensions included."""
        return bool(self.time_s[0] <= windows_s[0][0] and windows_s[-1][1] <= self.time_s[-1])

    def ends_in_gap(self, windows_s: Windows) -> bool:
        """Whether a window begins or ends in a piece longer than ``GAP_S``."""
        piece = self._piece_at(np.ravel(windows_s))
        return bool((self.time_s[piece + 1] - self.time_s[piece] > GAP_S).any())

    def _piece_at(self, time_s: Column) -> npt.NDArray[np.intp]:
        """Index of the piece at each time, clipped to the ends."""
        return np.clip(np.searchsorted(self.time_s, time_s, side="right") - 1, 0, len(self.time_s) - 2)

    def shared_sigma_j(self, windows_s: Windows) -> float:
        """Standard deviation of the energy within windows by errors common to many pieces.

        A time shift of ±``shift_s``, cells of repeated cycles without a ripple, and the ends of several windows.
        """
        moved_s = np.array([0.0, -self.shift_s, self.shift_s])[:, None, None] + np.asarray(windows_s)
        at_ends_j = self.at(moved_s)
        energy_j = (at_ends_j[..., 1] - at_ends_j[..., 0]).sum(axis=1).tolist()
        shifted_j = max(abs(moved_j - energy_j[0]) for moved_j in energy_j[1:])
        ends_j = 0.0
        if len(windows_s) > 1:  # equal errors in the pieces at the ends add up
            piece = self._piece_at(np.ravel(windows_s))
            piece_j2 = self.sums["variance_j2"][piece + 1] - self.sums["variance_j2"][piece]
            together_j2 = float(np.sqrt(piece_j2).sum()) ** 2 - float(piece_j2.sum())
            ends_j = ENDS_ALIKE * math.sqrt(max(together_j2, 0.0))
        return math.hypot(shifted_j, ends_j, 0 if self.ripples else math.sqrt(self.within("repeated_j2", windows_s)))


def undo_low_pass(time_s: Column, power_w: Column, tau_s: float, tau_sigma_s: float) -> Curve:
    """The load's energy from samples of the series, with at most one step in each cell.

    The low-pass has the time constant ``tau_s``, known to within ``tau_sigma_s``.
    """
    period_s, noise = median(np.diff(time_s)), sample_noise_w(power_w)
    pieces, blind_s = _energy.undone(time_s, power_w, noise, tau_s=tau_s, period_s=period_s, gap_s=GAP_S)
    ends_s, piece_j, sigma_j, missed_j, counted_j2, unsteady_j = pieces
    in_step, shared = repeats(time_s, power_w, period_s)
    return Curve.of_pieces(
        np.concatenate((time_s[:1], ends_s)),
        piece_j,
        sigma_j,
        # A load in step has all its invisible steps at the same wrong place.
        float(np.hypot(tau_sigma_s, blind_s / np.sqrt(12))),
        repeated_j2=shared * sigma_j**2,
        counted_j2=counted_j2,
        coherent_j=in_step * missed_j,
        in_step_j=in_step * (missed_j + unsteady_j),
    )


MIN_SERIES = 4
# Samples within 2 s of a window's end are folded: enough for a shape, few enough for a period that drifts.
RIPPLE_SPAN_S = 2.0
# Samples within 4 s of a window, or of an end of a long one, are searched for a load in step.
LOOKED_AT_S = 4.0


def series_curve(samples: Samples, windows_s: Windows, sensor: SensorModel) -> Curve | None:
    """Energy by the series, with the low-pass undone and ripples at a lone window's ends folded.

    ``None`` for fewer than ``MIN_SERIES`` samples.
    """
    if len(samples.time_s) < MIN_SERIES:
        return None
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    # A short window whole, else both its ends.
    short = end_s - start_s <= 2 * RIPPLE_SPAN_S
    ends_s = [(start_s, end_s)] if short else [(start_s, start_s), (end_s, end_s)]
    ripples: list[Ripple] = []
    possible_w = 0.0
    for first_s, last_s in ends_s:
        looked_at = samples.near(first_s - LOOKED_AT_S, last_s + LOOKED_AT_S)
        if len(windows_s) == 1:  # ripples of several windows would overlap; unfolded, they widen the bound
            near = samples.near(first_s - RIPPLE_SPAN_S, last_s + RIPPLE_SPAN_S)
            ripple = find_ripple(near.time_s, near.power_w, noise_w(near.power_w))
            if ripple is not None:
                ripple = replace(ripple, tau_s=sensor.tau_s)
                ripples.append(ripple.settled(sensor.period_s))
                looked_at = _less(looked_at.near(ripple.start_s, ripple.end_s), [ripple])
        if sensor.resolves:
            possible_w = max(possible_w, hidden_w(looked_at.time_s, looked_at.power_w, sensor.period_s))
    smooth = _less(samples, ripples)
    curve = undo_low_pass(smooth.time_s, smooth.power_w, sensor.tau_s, sensor.tau_sigma_s)
    return replace(
        curve,
        ripples=tuple(ripples),
        in_step_w=max((ripple.in_step_w(sensor.period_s) for ripple in ripples), default=0.0),
        drifting_j2=max((ripple.drifting_j2(sensor.period_s) for ripple in ripples), default=0.0),
        hidden_w=possible_w,
    )


def _less(samples: Samples, ripples: Sequence[Ripple]) -> Samples:
    """Samples without ripples."""
    return replace(samples, power_w=samples.power_w - sum(ripple.power_seen_w(samples.time_s) for ripple in ripples))
