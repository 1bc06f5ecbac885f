"""What a sensor averages over, fitted to its readings of a load of known square waves.

Of a sensor that shows the mean of a window behind a first-order low-pass, some lag ago, every reading follows in closed
form: of the window, the low-pass and the lag, those are taken that leave the least squares, with the powers fitted to
each (variable projection: Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973): the best of a grid, then damped
Gauss-Newton steps (Levenberg, Q. Appl. Math. 2, 1944). Each part of the load is fitted by itself too: what they differ
by is how well each figure is known. Periods shorter than the sensor's own show the window by aliasing (Yang et al.,
SC24).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pybench.core.statistics.spread import SD_OF_MAD
from pybench.power.energy.sensor_response import NUM_FIGURES, Readings, Response
from pybench.power.energy.square_load import Spans, SquareLoad
from pybench.power.energy.times import Column

TAUS_S = np.array([0, 3, 6, 9, 12, 15, 20, 30, 50, 100, 200]) / 1e3
WINDOWS_S = np.array([0, 5, 10, 20, 25, 35, 50, 75, 100, 200, 500, 1000]) / 1e3
LAGS_S = np.arange(-30, 121, 10) / 1e3
NUM_STARTS = 6
MOST_STEPS = 30
POLISH_S = 2e-3
MOST_POLISH = 14
MOVES = tuple(itertools.product((-1, 0, 1), repeat=NUM_FIGURES))
MIN_SINGLES = 2
MIN_READINGS = 12
LEAST_SIGMA_S = 0.3e-3


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
    near = np.array([_near(time_s, part) for part in parts])
    if near.sum() < MIN_READINGS:
        return None
    load, every = SquareLoad.of([span for part in parts for span in part]), np.any(near, axis=0)
    readings = Readings(load, time_s[every], power_w[every], np.argmax(near, axis=0)[every])
    whole = _fit(readings)
    singles = [_refined(readings.within(which), whole) for which in near[:, every] if which.sum() >= MIN_READINGS]
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
    # The median: a part whose period the sensor hardly shows must not decide.
    off_s = SD_OF_MAD * float(np.median(np.abs(np.asarray(values_s) - np.median(values_s))))
    return max(off_s / float(np.sqrt(len(values_s))), LEAST_SIGMA_S)


def _fit(readings: Readings) -> Response:
    grid = [(window, tau, lag) for window in WINDOWS_S for tau in TAUS_S for lag in LAGS_S]
    found = sorted((readings.response(*each) for each in grid), key=_off)
    # Windows a period of the load apart look alike on a coarse grid.
    of_window: dict[float, Response] = {}
    for response in found:
        of_window.setdefault(response.window_s, response)
    starts = list(of_window.values())[:NUM_STARTS]
    return min((_refined(readings, start) for start in starts), key=_off)


def _refined(readings: Readings, start: Response) -> Response:
    """The best of damped steps again and again, until none is better."""
    best = start
    for _ in range(MOST_STEPS):
        at = np.array([best.window_s**2, best.tau_s, best.lag_s + best.window_s / 2])
        ends = [np.maximum(at + step, [0.0, 0.0, -np.inf]) for step in readings.steps(best)]
        around = [(float(np.sqrt(window2)), tau, middle) for window2, tau, middle in ends]
        better = min((readings.response(w, tau, middle - w / 2) for w, tau, middle in around), key=_off)
        if better.off_fraction >= best.off_fraction:
            break
        best = better
    return _polished(readings, best)


def _polished(readings: Readings, start: Response) -> Response:
    """By trials on all sides, ever nearer: which readings are left out changes in jumps, where steps by slopes end."""
    best, side_s = start, POLISH_S
    for _ in range(MOST_POLISH):
        at = np.array([best.window_s, best.tau_s, best.lag_s + best.window_s / 2 + best.tau_s])
        around = [np.maximum(at + side_s * np.array(move), [0.0, 0.0, -np.inf]) for move in MOVES]
        tried = (readings.response(w, tau, mean - w / 2 - tau) for w, tau, mean in around)
        better = min((best, *tried), key=_off)
        side_s = side_s / 2 if better is best else side_s
        best = better
    return best


def _off(response: Response) -> float:
    return response.off_fraction
