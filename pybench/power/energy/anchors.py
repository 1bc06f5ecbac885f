"""Counter values placed on a grid: the moments at which the sum is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.energy.grid import PublicationGrid, longest_period_s
from pybench.power.energy.readings import Readings
from pybench.power.energy.times import Column

# Placing one publication wrongly makes the power jump by a half and more.
EVEN_FACTOR = 1.05
EVEN_FLOOR = 0.05
# On eight H200s half of all publications came within 0.14 ms of their grid, one in twenty 1.5 to 4 ms beside it.
PUBLICATION_BLUR_S = 0.6e-3


@dataclass(frozen=True)
class Anchors:
    """``energy_j`` is the counter's sum at ``time_s``, less the sensor's lag.

    ``blur_s`` is how far each time may be off by itself, beyond an error that all share.
    """

    time_s: Column
    energy_j: Column
    blur_s: Column

    def keep(self, which: npt.NDArray[np.bool_]) -> Anchors:
        """Only those that are marked."""
        return Anchors(self.time_s[which], self.energy_j[which], self.blur_s[which])

    def unevenness(self) -> float:
        """How much the mean power changes from one interval to the next: publications counted wrongly make it jump."""
        power_w = np.diff(self.energy_j) / np.diff(self.time_s)
        return float(np.sum(np.abs(np.diff(np.log(np.maximum(power_w, 1e-9))))))


def evenest(placed: Sequence[tuple[Anchors, PublicationGrid]]) -> tuple[Anchors, PublicationGrid]:
    """The grid to believe in where only the counter is known: the weightiest of those that are about as even."""
    least = min(anchors.unevenness() for anchors, _ in placed)
    even = [pair for pair in placed if pair[0].unevenness() <= EVEN_FACTOR * least + EVEN_FLOOR]
    return max(even, key=lambda pair: pair[1].weight)


def on_grid(readings: Readings, grid: PublicationGrid) -> Anchors | None:
    """Each value at its publication; ``None`` where the grid can't hold them.

    A reading that may lie before or after a publication is placed by its neighbours: a value's readings all saw one
    publication, and a later value is a later publication.
    """
    first = readings.firsts
    time_s = _energy.published(readings.before_s, readings.after_s, first.tolist(), grid.phase_s, grid.period_s)
    if time_s is None:
        return None
    return Anchors(time_s, readings.energy_mj[first] / 1e3, np.full(len(first), PUBLICATION_BLUR_S))


def without_grid(readings: Readings) -> Anchors:
    """Each new value in the middle of the time in which it can have been published.

    That is no longer than a period before the reading, however long ago the counter was read before that.
    """
    low_s, high_s = readings.brackets
    low_s = np.maximum(low_s, readings.before_s[readings.changes] - longest_period_s(low_s, high_s))
    energy_j = readings.energy_mj[readings.changes] / 1e3
    return Anchors((low_s + high_s) / 2, energy_j, (high_s - low_s) / np.sqrt(12))
