"""What a sensor averages over, fitted to its readings of a load of known square waves.

The load is on within known spans. It draws one power then, another one else, both unknown; in each part of the load,
which has a period of its own, the first may differ: under a power limit short work draws more. Of a sensor that shows
the mean of a window behind a first-order low-pass, some lag ago, every reading follows in closed form: of the window,
the low-pass and the lag, those are taken that leave the least squares, with the powers fitted to each (variable
projection: Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973): the best of a grid, then damped Gauss-Newton steps
(Levenberg, Q. Appl. Math. 2, 1944). At most a tenth of the readings is left out as stray. Where more may be, a wrong
response that meets the readings far from the load's edges fits by leaving out those near them. Each part of the load
is fitted by itself too: what they differ by is how well each figure is known. Periods shorter than the sensor's own
show the window by aliasing (Yang et al., SC24).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.times import Column

Spans = Sequence[tuple[float, float]]
"""Starts and ends of the time in which the load was on, in s, one after the other."""

Parts = npt.NDArray[np.intp]

TAUS_S = np.array([0, 3, 6, 9, 12, 15, 20, 30, 50, 100, 200]) / 1e3
WINDOWS_S = np.array([0, 5, 10, 20, 25, 35, 50, 75, 100, 200, 500, 1000]) / 1e3
LAGS_S = np.arange(-30, 121, 10) / 1e3
NUM_STARTS = 6
MOST_STEPS = 30
# Slopes are differences over so much of a window, a low-pass or a lag.
SLOPE_S = 0.3e-3
NUM_FIGURES = 3
# Which of the window, the low-pass and the window's middle move together.
FREE = ((0, 1, 2), (1, 2), (0, 2), (2,))
DAMPINGS = (1e-6, 1e-3, 1e-2, 1e-1, 1.0)
POLISH_S = 2e-3
MOST_POLISH = 14
MOVES = tuple(itertools.product((-1, 0, 1), repeat=NUM_FIGURES))
MIN_SINGLES = 2
MIN_READINGS = 12
# Readings farther off than this many times the middle one are left out, the farthest of them: ramps, and slips of the
# driver.
TRIM_TIMES = 6.0
MOST_LEFT_OUT_FRACTION = 0.1
LEAST_SIGMA_S = 0.3e-3
# A shorter window or low-pass is none.
LEAST_SHOWN_S = 1e-6
# Median of absolute deviations to standard deviation: a part whose period the sensor hardly shows must not decide.
MAD_SIGMAS = 1.4826


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
class SensorFit:
    """The response to the whole load, with standard deviations from its parts; ``None`` where there is one part."""

    response: Response
    window_sigma_s: float | None
    tau_sigma_s: float | None
    lag_sigma_s: float | None
    period_s: float


def fit_sensor(time_s: Column, power_w: Column, parts: Sequence[Spans]) -> SensorFit | None:
    """The sensor's response by its readings; ``None`` where too few of them lie within the parts."""
    near = [_near(time_s, part) for part in parts]
    if sum(int(which.sum()) for which in near) < MIN_READINGS:
        return None
    load, every = _SquareLoad.of([span for part in parts for span in part]), np.any(near, axis=0)
    whole = _fit(load, time_s[every], power_w[every], np.argmax(near, axis=0)[every])
    singles = [
        _refined(load, time_s[which], power_w[which], np.zeros(which.sum(), dtype=np.intp), whole)
        for which in near
        if which.sum() >= MIN_READINGS
    ]
    return SensorFit(
        whole,
        _sigma_s([one.window_s for one in singles]),
        _sigma_s([one.tau_s for one in singles]),
        _sigma_s([one.lag_s for one in singles]),
        float(np.median(np.diff(time_s))),
    )


def _near(time_s: Column, part: Spans) -> npt.NDArray[np.bool_]:
    return np.asarray((time_s >= part[0][0]) & (time_s <= part[-1][1]))


def _sigma_s(values_s: Sequence[float]) -> float | None:
    if len(values_s) < MIN_SINGLES:
        return None
    off_s = MAD_SIGMAS * float(np.median(np.abs(np.asarray(values_s) - np.median(values_s))))
    return max(off_s / float(np.sqrt(len(values_s))), LEAST_SIGMA_S)


def _fit(load: _SquareLoad, time_s: Column, power_w: Column, part: Parts) -> Response:
    """``part`` is the number of the part of the load that each reading lies in."""
    grid = [(window, tau, lag) for window in WINDOWS_S for tau in TAUS_S for lag in LAGS_S]
    found = sorted((_response(load, time_s, power_w, part, *each) for each in grid), key=_off)
    # Windows a period of the load apart look alike on a coarse grid.
    of_window: dict[float, Response] = {}
    for response in found:
        of_window.setdefault(response.window_s, response)
    starts = list(of_window.values())[:NUM_STARTS]
    return min((_refined(load, time_s, power_w, part, start) for start in starts), key=_off)


def _refined(load: _SquareLoad, time_s: Column, power_w: Column, part: Parts, start: Response) -> Response:
    """The best of damped steps again and again, until none is better."""
    best = start
    for _ in range(MOST_STEPS):
        at = np.array([best.window_s**2, best.tau_s, best.lag_s + best.window_s / 2])
        ends = [np.maximum(at + step, [0.0, 0.0, -np.inf]) for step in _steps(load, time_s, power_w, part, best)]
        around = [(float(np.sqrt(window2)), tau, middle) for window2, tau, middle in ends]
        tried = [_response(load, time_s, power_w, part, w, tau, middle - w / 2) for w, tau, middle in around]
        better = min(tried, key=_off)
        if better.off_fraction >= best.off_fraction:
            break
        best = better
    return _polished(load, time_s, power_w, part, best)


def _polished(load: _SquareLoad, time_s: Column, power_w: Column, part: Parts, start: Response) -> Response:
    """By trials on all sides, ever nearer: which readings are left out changes in jumps, where steps by slopes end."""
    best, side_s = start, POLISH_S
    for _ in range(MOST_POLISH):
        at = np.array([best.window_s, best.tau_s, best.lag_s + best.window_s / 2 + best.tau_s])
        around = [np.maximum(at + side_s * np.array(move), [0.0, 0.0, -np.inf]) for move in MOVES]
        tried = [_response(load, time_s, power_w, part, w, tau, mean - w / 2 - tau) for w, tau, mean in around]
        better = min((best, *tried), key=_off)
        side_s = side_s / 2 if better is best else side_s
        best = better
    return best


def _steps(load: _SquareLoad, time_s: Column, power_w: Column, part: Parts, start: Response) -> list[Column]:
    """Gauss-Newton steps of the window's square, the low-pass and the window's middle, each (3,).

    The powers move along. Each choice of what is free is tried, as the window and the low-pass may be at 0.
    """
    seen = load.seen(time_s - start.lag_s, start.window_s, start.tau_s)
    keep, low_w, swing_w = _trimmed(seen, power_w, part)
    slopes, seen, part = _slopes(load, time_s, start, seen)[keep], seen[keep], part[keep]
    own = (part[:, None] == np.arange(len(swing_w))) * seen[:, None]
    columns = np.column_stack((swing_w[part][:, None] * slopes, np.ones_like(seen), own))
    left_w = power_w[keep] - low_w - swing_w[part] * seen
    return [_step(columns, left_w, free, damping) for free in FREE for damping in DAMPINGS]


def _slopes(load: _SquareLoad, time_s: Column, start: Response, seen: Column) -> Column:
    """What is seen, by the window's square, by the low-pass and by the window's middle, (readings, 3).

    By the square, as of a short window that is what shows, and by the middle, as a longer window that ends as much
    later shows nearly the same.
    """
    at_s, window_s, tau_s = time_s - start.lag_s, start.window_s, start.tau_s
    wider = load.seen(at_s + SLOPE_S / 2, window_s + SLOPE_S, tau_s) - seen
    slower = load.seen(at_s, window_s, tau_s + SLOPE_S) - seen
    later = load.seen(at_s - SLOPE_S, window_s, tau_s) - load.seen(at_s + SLOPE_S, window_s, tau_s)
    by = [(window_s + SLOPE_S) ** 2 - window_s**2, SLOPE_S, 2 * SLOPE_S]
    return np.column_stack((wider, slower, later)) / by


def _step(columns: Column, left_w: Column, free: Sequence[int], damping: float) -> Column:
    """Of the first three columns only the free ones move, damped as parts of the columns' lengths."""
    chosen = [*free, *range(NUM_FIGURES, columns.shape[1])]
    length = np.maximum(np.linalg.norm(columns[:, chosen], axis=0), 1e-9)
    unit = columns[:, chosen] / length
    found = np.linalg.solve(unit.T @ unit + damping * np.eye(len(chosen)), unit.T @ left_w) / length
    step = np.zeros(NUM_FIGURES)
    step[list(free)] = found[: len(free)]
    return step


def _off(response: Response) -> float:
    return response.off_fraction


def _response(
    load: _SquareLoad, time_s: Column, power_w: Column, part: Parts, window_s: float, tau_s: float, lag_s: float
) -> Response:
    seen = load.seen(time_s - lag_s, window_s, tau_s)
    keep, low_w, swing_w = _trimmed(seen, power_w, part)
    left = (power_w[keep] - low_w - swing_w[part[keep]] * seen[keep]) / swing_w[part[keep]]
    off = float(np.sqrt(np.mean(left**2)))
    # A response that shows hardly any of the load fits nothing.
    high_w = low_w + float(np.median(swing_w))
    return Response(window_s, tau_s, lag_s, low_w, high_w, off if np.ptp(seen) > 0 else np.inf)


def _trimmed(seen: Column, power_w: Column, part: Parts) -> tuple[npt.NDArray[np.bool_], float, Column]:
    """Which readings are near what the load would show, and the powers by those."""
    low_w, swing_w = _powers(seen, power_w, part)
    off_w = np.abs(power_w - low_w - swing_w[part] * seen)
    ordered_w, last = np.sort(off_w), len(off_w) - 1
    usual_w, most_w = ordered_w[last // 2], ordered_w[int(np.ceil(last * (1 - MOST_LEFT_OUT_FRACTION)))]
    keep = np.asarray(off_w <= max(TRIM_TIMES * float(usual_w), float(most_w), 1e-3))
    return keep, *_powers(seen[keep], power_w[keep], part[keep])


def _powers(seen: Column, power_w: Column, part: Parts) -> tuple[float, Column]:
    """Least squares: one power while off, and by how much each part of the load is above it while on."""
    number, seen_sum, seen2, power_sum, both = (
        np.bincount(part, column) for column in (np.ones_like(seen), seen, seen**2, power_w, seen * power_w)
    )
    slope = seen_sum / np.maximum(seen2, 1e-12)
    low_w = float(np.sum(power_sum - slope * both) / max(np.sum(number - slope * seen_sum), 1e-12))
    return low_w, np.maximum((both - low_w * seen_sum) / np.maximum(seen2, 1e-12), 1e-9)


@dataclass(frozen=True)
class _SquareLoad:
    """1 within spans, 0 else; ``edge_s`` in order, and how long it was on before each."""

    edge_s: Column
    on_s: Column
    _passed_at: dict[float, Column] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, spans: Spans) -> _SquareLoad:
        edge_s = np.ravel(spans).astype(np.float64)
        lengths_s = np.diff(edge_s) * (np.arange(len(edge_s) - 1) % 2 == 0)
        return cls(edge_s, np.concatenate(([0.0], np.cumsum(lengths_s))))

    def seen(self, time_s: Column, window_s: float, tau_s: float) -> Column:
        """Mean of the window before each time, of the load behind the low-pass."""
        if window_s < LEAST_SHOWN_S:
            return self._passed(time_s, tau_s)
        now = self._on(time_s) - tau_s * self._passed(time_s, tau_s)
        before = self._on(time_s - window_s) - tau_s * self._passed(time_s - window_s, tau_s)
        return np.asarray((now - before) / window_s)

    def _on(self, time_s: Column) -> Column:
        return np.asarray(np.interp(time_s, self.edge_s, self.on_s))

    def _passed(self, time_s: Column, tau_s: float) -> Column:
        which = np.searchsorted(self.edge_s, time_s, side="right")
        on = (which % 2 == 1).astype(np.float64)
        if tau_s < LEAST_SHOWN_S:
            return np.asarray(on)
        if tau_s not in self._passed_at:
            self._passed_at[tau_s] = self._at_edges(tau_s)
        at_edges = self._passed_at[tau_s]
        last = np.clip(which - 1, 0, len(self.edge_s) - 1)
        passed = on + (at_edges[last] - on) * np.exp(-np.maximum(time_s - self.edge_s[last], 0.0) / tau_s)
        return np.asarray(np.where(which == 0, 0.0, passed))

    def _at_edges(self, tau_s: float) -> Column:
        passed = [0.0]
        for number, decay in enumerate(np.exp(-np.diff(self.edge_s) / tau_s).tolist(), start=1):
            power = 1.0 if number % 2 == 1 else 0.0
            passed.append(power + (passed[-1] - power) * decay)
        return np.array(passed)
