"""How a sensor's readings follow a load of square waves: of a given response, the powers that leave the least squares.

The load draws one power while off; in each part of the load, which has a period of its own, another one while on: under
a power limit short work draws more. At most a tenth of the readings is left out as stray. Where more may be, a wrong
response that meets the readings far from the load's edges fits by leaving out those near them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pybench.power.energy.square_load import SquareLoad
from pybench.power.energy.times import Column

# Slopes are differences over so much of a window, a low-pass or a lag.
SLOPE_S = 0.3e-3
NUM_FIGURES = 3
# Which of the window, the low-pass and the window's middle move together.
FREE = ((0, 1, 2), (1, 2), (0, 2), (2,))
DAMPINGS = (1e-6, 1e-3, 1e-2, 1e-1, 1.0)
# Readings farther off than this many times the middle one are left out, the farthest of them: ramps, and slips of the
# driver.
TRIM_TIMES = 6.0
MOST_LEFT_OUT_FRACTION = 0.1


@dataclass(frozen=True)
class Response:
    """How readings follow the load. ``off_fraction`` is what they are off by, in parts of the load's swing.

    ``high_w`` is the middle one of the parts' powers while on.
    """

    window_s: float
    tau_s: float
    lag_s: float
    low_w: float
    high_w: float
    off_fraction: float


@dataclass(frozen=True)
class Readings:
    """Of one load: times in s, powers in W, and the number of the load's part that each lies in, (readings,) each."""

    load: SquareLoad
    time_s: Column
    power_w: Column
    part: npt.NDArray[np.intp]

    def within(self, which: npt.NDArray[np.bool_]) -> Readings:
        """Those chosen, as one part."""
        time_s = self.time_s[which]
        return Readings(self.load, time_s, self.power_w[which], np.zeros(len(time_s), dtype=np.intp))

    def response(self, window_s: float, tau_s: float, lag_s: float) -> Response:
        """The powers of a response, and what the readings are off by."""
        seen = self.load.seen(self.time_s - lag_s, window_s, tau_s)
        keep, low_w, swing_w = self._trimmed(seen)
        left = (self.power_w[keep] - low_w - swing_w[self.part[keep]] * seen[keep]) / swing_w[self.part[keep]]
        off = float(np.sqrt(np.mean(left**2)))
        # A response that shows hardly any of the load fits nothing.
        high_w = low_w + float(np.median(swing_w))
        return Response(window_s, tau_s, lag_s, low_w, high_w, off if np.ptp(seen) > 0 else np.inf)

    def steps(self, start: Response) -> list[Column]:
        """Gauss-Newton steps of the window's square, the low-pass and the window's middle, each (3,).

        The powers move along. Each choice of what is free is tried, as the window and the low-pass may be at 0.
        """
        seen = self.load.seen(self.time_s - start.lag_s, start.window_s, start.tau_s)
        keep, low_w, swing_w = self._trimmed(seen)
        slopes, seen, part = self._slopes(start, seen)[keep], seen[keep], self.part[keep]
        own = (part[:, None] == np.arange(len(swing_w))) * seen[:, None]
        columns = np.column_stack((swing_w[part][:, None] * slopes, np.ones_like(seen), own))
        left_w = self.power_w[keep] - low_w - swing_w[part] * seen
        return [_step(columns, left_w, free, damping) for free in FREE for damping in DAMPINGS]

    def _slopes(self, start: Response, seen: Column) -> Column:
        """What is seen, by the window's square, by the low-pass and by the window's middle, (readings, 3).

        By the square, as of a short window that is what shows, and by the middle, as a longer window that ends as much
        later shows nearly the same.
        """
        at_s, window_s, tau_s, load = self.time_s - start.lag_s, start.window_s, start.tau_s, self.load
        wider = load.seen(at_s + SLOPE_S / 2, window_s + SLOPE_S, tau_s) - seen
        slower = load.seen(at_s, window_s, tau_s + SLOPE_S) - seen
        later = load.seen(at_s - SLOPE_S, window_s, tau_s) - load.seen(at_s + SLOPE_S, window_s, tau_s)
        by = [(window_s + SLOPE_S) ** 2 - window_s**2, SLOPE_S, 2 * SLOPE_S]
        return np.column_stack((wider, slower, later)) / by

    def _trimmed(self, seen: Column) -> tuple[npt.NDArray[np.bool_], float, Column]:
        """Which readings are near what the load would show, and the powers by those."""
        low_w, swing_w = _powers(seen, self.power_w, self.part)
        off_w = np.abs(self.power_w - low_w - swing_w[self.part] * seen)
        ordered_w, last = np.sort(off_w), len(off_w) - 1
        usual_w, most_w = ordered_w[last // 2], ordered_w[int(np.ceil(last * (1 - MOST_LEFT_OUT_FRACTION)))]
        keep = np.asarray(off_w <= max(TRIM_TIMES * float(usual_w), float(most_w), 1e-3))
        return keep, *_powers(seen[keep], self.power_w[keep], self.part[keep])


def _step(columns: Column, left_w: Column, free: Sequence[int], damping: float) -> Column:
    """Of the first three columns only the free ones move, damped as parts of the columns' lengths."""
    chosen = [*free, *range(NUM_FIGURES, columns.shape[1])]
    length = np.maximum(np.linalg.norm(columns[:, chosen], axis=0), 1e-9)
    unit = columns[:, chosen] / length
    found = np.linalg.solve(unit.T @ unit + damping * np.eye(len(chosen)), unit.T @ left_w) / length
    step = np.zeros(NUM_FIGURES)
    step[list(free)] = found[: len(free)]
    return step


def _powers(seen: Column, power_w: Column, part: npt.NDArray[np.intp]) -> tuple[float, Column]:
    """Least squares: one power while off, and by how much each part of the load is above it while on."""
    number, seen_sum, seen2, power_sum, both = (
        np.bincount(part, column) for column in (np.ones_like(seen), seen, seen**2, power_w, seen * power_w)
    )
    slope = seen_sum / np.maximum(seen2, 1e-12)
    low_w = float(np.sum(power_sum - slope * both) / max(np.sum(number - slope * seen_sum), 1e-12))
    return low_w, np.maximum((both - low_w * seen_sum) / np.maximum(seen2, 1e-12), 1e-9)
