"""Calibrate a GPU's power sensor: readings under a load of known square waves, and the model that fits them.

The readings of a sensor that shows the mean of a window behind a first-order low-pass follow in closed form. The
figures with the least residual are searched, the best of a grid first, then by trials on all sides; the load's powers
follow by least squares (variable projection: Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973). Each part of the load
is also fitted alone: the scatter of its figures gives their standard deviations. Periods shorter than the sensor's show
the window by aliasing (Yang et al., SC24).
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from pybench.core.numbers import short_percent
from pybench.core.statistics.spread import SD_OF_MAD
from pybench.model.errors import MachineError
from pybench.model.wire import STARTER_VARIABLE
from pybench.power.recorder import PowerRecorder
from pybench.power.samples import Column, Windows, polled_power_mw, samples_of
from pybench.power.sensor import SensorModel, shipped_model
from pybench.power.trace import MISSING, GpuTrace, PowerTrace

# Figures of the grid, in s.
TAUS_S = np.array([0, 3, 6, 9, 12, 15, 20, 30, 50, 100, 200]) / 1e3
WINDOWS_S = np.array([0, 5, 10, 20, 25, 35, 50, 75, 100, 200, 500, 1000]) / 1e3
LAGS_S = np.arange(-30, 121, 10) / 1e3
# Trials move each figure by the first side in s; the side is halved down to the last.
FIRST_SIDE_S, LAST_SIDE_S = 8e-3, 4e-6
MOVES = tuple(itertools.product((-1, 0, 1), repeat=3))
# Parts needed for a standard deviation, and its least value in s.
MIN_SINGLES = 2
LEAST_SIGMA_S = 0.3e-3
# Readings needed for a fit.
MIN_READINGS = 12
# A shorter window or low-pass in s counts as none.
LEAST_SHOWN_S = 1e-6


@dataclass(frozen=True)
class Response:
    """How readings follow the load.

    ``off_fraction`` is the mean absolute residual over the load's swing; ``high_w`` is the median over the parts.
    """

    window_s: float
    tau_s: float
    lag_s: float
    low_w: float
    high_w: float
    off_fraction: float


OFF = attrgetter("off_fraction")


@dataclass(frozen=True)
class SensorFit:
    """The response to the whole load, and standard deviations from its parts; ``None`` for a single part."""

    response: Response
    window_sigma_s: float | None
    tau_sigma_s: float | None
    lag_sigma_s: float | None
    period_s: float


def fit_sensor(time_s: Column, power_w: Column, parts: Sequence[Windows]) -> SensorFit | None:
    """The sensor's response; ``None`` for fewer than ``MIN_READINGS`` readings within the parts.

    ``parts`` holds the spans of each part while the load was on.
    """
    near = np.array([(time_s >= part[0][0]) & (time_s <= part[-1][1]) for part in parts])
    if near.sum() < MIN_READINGS:
        return None
    load, every = SquareLoad.of([span for part in parts for span in part]), np.any(near, axis=0)
    readings = _Readings(load, time_s[every], power_w[every], np.argmax(near, axis=0)[every])
    grid = [(window, tau, lag) for window in WINDOWS_S for tau in TAUS_S for lag in LAGS_S]
    whole = readings.refined(min((readings.response(*figures) for figures in grid), key=OFF))
    singles = []
    for which in (which for which in near[:, every] if which.sum() >= MIN_READINGS):
        times_s, powers_w = readings.time_s[which], readings.power_w[which]
        alone = _Readings(load, times_s, powers_w, np.zeros(len(times_s), dtype=np.intp)).refined(whole)
        singles.append((alone.window_s, alone.tau_s, alone.lag_s))
    window_s = tau_s = lag_s = None
    if len(singles) >= MIN_SINGLES:  # by the median deviation: one part may hardly show the window
        off_s = SD_OF_MAD * np.median(np.abs(np.array(singles) - np.median(singles, axis=0)), axis=0)
        window_s, tau_s, lag_s = np.maximum(off_s / np.sqrt(len(singles)), LEAST_SIGMA_S).tolist()
    return SensorFit(whole, window_s, tau_s, lag_s, float(np.median(np.diff(time_s))))


@dataclass(frozen=True)
class _Readings:
    """Times, powers, and the number of the load's part of each reading."""

    load: SquareLoad
    time_s: Column
    power_w: Column
    part: npt.NDArray[np.intp]

    def response(self, window_s: float, tau_s: float, lag_s: float) -> Response:
        """The powers and the residual with these figures."""
        seen = self.load.seen(self.time_s - lag_s, window_s, tau_s)
        low_w, swing_w = _powers(seen, self.power_w, self.part)
        # A mean of absolute values: ramps and driver errors count little.
        off = float(np.mean(np.abs((self.power_w - low_w) / swing_w[self.part] - seen)))
        high_w = low_w + float(np.median(swing_w))
        # A window or low-pass so long that the load does not show fits nothing.
        return Response(window_s, tau_s, lag_s, low_w, high_w, off if np.ptp(seen) > 0 else np.inf)

    def refined(self, start: Response) -> Response:
        """The best response nearby, by trials on all sides that come closer and closer.

        Window, low-pass and mean delay are varied: the mean delay is known better than the lag alone.
        """
        best, side_s = start, FIRST_SIDE_S
        while side_s > LAST_SIDE_S:
            at = np.array([best.window_s, best.tau_s, best.lag_s + best.window_s / 2 + best.tau_s])
            around = [np.maximum(at + side_s * np.array(move), [0.0, 0.0, -np.inf]) for move in MOVES]
            tried = (self.response(w, tau, delay - w / 2 - tau) for w, tau, delay in around)
            better = min((best, *tried), key=OFF)
            if better is best:
                side_s /= 2
            best = better
        return best


def _powers(seen: Column, power_w: Column, part: npt.NDArray[np.intp]) -> tuple[float, Column]:
    """Least squares: the power while off, and each part's swing. Under a power limit short work draws more."""
    number, seen_sum, seen2, power_sum, both = (
        np.bincount(part, column) for column in (np.ones_like(seen), seen, seen**2, power_w, seen * power_w)
    )
    slope = seen_sum / np.maximum(seen2, 1e-12)
    low_w = float(np.sum(power_sum - slope * both) / max(np.sum(number - slope * seen_sum), 1e-12))
    return low_w, np.maximum((both - low_w * seen_sum) / np.maximum(seen2, 1e-12), 1e-9)


@dataclass(frozen=True)
class SquareLoad:
    """A load of 1 within spans, else 0: its edges in ascending order, and the time it was on before each."""

    edge_s: Column
    on_s: Column
    _passed_at: dict[float, Column] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, spans: Windows) -> SquareLoad:
        """A load that is on within each of the spans."""
        edge_s = np.ravel(spans).astype(np.float64)
        lengths_s = np.diff(edge_s) * (np.arange(len(edge_s) - 1) % 2 == 0)
        return cls(edge_s, np.concatenate(([0.0], np.cumsum(lengths_s))))

    def seen(self, time_s: Column, window_s: float, tau_s: float) -> Column:
        """Mean over the window before each time of the load behind the low-pass."""
        if window_s < LEAST_SHOWN_S:
            return self._passed(time_s, tau_s)
        now, before = (
            np.interp(at_s, self.edge_s, self.on_s) - tau_s * self._passed(at_s, tau_s)
            for at_s in (time_s, time_s - window_s)
        )
        return np.asarray((now - before) / window_s)

    def _passed(self, time_s: Column, tau_s: float) -> Column:
        """The load behind the low-pass."""
        which = np.searchsorted(self.edge_s, time_s, side="right")
        on = (which % 2 == 1).astype(np.float64)
        if tau_s < LEAST_SHOWN_S:
            return np.asarray(on)
        if tau_s not in self._passed_at:
            passed = [0.0]
            for number, decay in enumerate(np.exp(-np.diff(self.edge_s) / tau_s).tolist(), start=1):
                power = 1.0 if number % 2 == 1 else 0.0
                passed.append(power + (passed[-1] - power) * decay)
            self._passed_at[tau_s] = np.array(passed)
        at_edges = self._passed_at[tau_s]
        last = np.clip(which - 1, 0, len(self.edge_s) - 1)
        behind = on + (at_edges[last] - on) * np.exp(-np.maximum(time_s - self.edge_s[last], 0.0) / tau_s)
        return np.asarray(np.where(which == 0, 0.0, behind))


# Seconds on, seconds off, and length of each part. The periods cover those of known sensors (20 to 1000 ms) and are out
# of step with 20 and 100 ms.
SCHEDULE = (
    (0.5, 0.5, 8.0),
    (0.1017, 0.1017, 8.0),
    (0.0553, 0.0553, 8.0),
    (0.0383, 0.0383, 8.0),
    (0.0217, 0.0217, 8.0),
    (0.0157, 0.0157, 8.0),
)
START_LIMIT_S = 60.0
LOAD_MARGIN_S = 15.0
LEAD_S = 1.0
TAIL_S = 0.3
# Readings farther from every response than this, in parts of the load's swing, follow none that is known here.
MOST_OFF_FRACTION = 0.08
# Least swing in W that shows the sensor.
LEAST_SWING_W = 20.0
LAG_MARGIN_S = 0.010

Span = tuple[int, int]
Schedule = Sequence[tuple[float, float, float]]
RunLoad = Callable[[str, Schedule], list[Span]]


@dataclass(frozen=True)
class Calibration:
    """The result for one GPU; ``reason`` explains a model that is missing or was not stored."""

    uuid: str
    index: int | None
    board: str
    driver: str
    fit: SensorFit | None
    model: SensorModel | None
    reason: str | None


def calibrate(uuid: str, run_load: RunLoad | None = None) -> Calibration:
    """Run the load on one GPU while recording it, and fit its sensor.

    ``run_load`` takes the UUID and the schedule, and returns when the GPU worked. Raises ``MachineError`` when power
    can't be recorded or the load can't be run.
    """
    with PowerRecorder([uuid]) as recorder:
        time.sleep(LEAD_S)
        spans = (run_load or run_square_load)(uuid, SCHEDULE)
        time.sleep(TAIL_S)
        trace = recorder.stop()
    (gpu,) = trace.gpus
    origin_ns = spans[0][0]
    spans_s = iter([((start_ns - origin_ns) / 1e9, (end_ns - origin_ns) / 1e9) for start_ns, end_ns in spans])
    parts = [list(itertools.islice(spans_s, int(length_s / (on_s + off_s)))) for on_s, off_s, length_s in SCHEDULE]
    fit = fit_sensor(*_readings(gpu, trace, origin_ns), parts)
    reason = _doubt(fit)
    model = None if fit is None or reason is not None else _model(gpu, trace.driver, fit)
    return Calibration(gpu.uuid, gpu.index, gpu.name, trace.driver, fit, model, reason)


def run_square_load(uuid: str, schedule: Schedule) -> list[Span]:
    """The schedule by :mod:`pybench.worker.backends.common_torch.square_load`, in a process of its own."""
    command = [sys.executable, "-m", "pybench.worker.backends.common_torch.square_load", json.dumps(schedule)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid, STARTER_VARIABLE: str(os.getpid())}
    limit_s = START_LIMIT_S + LOAD_MARGIN_S + sum(length_s for _, _, length_s in schedule)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"power calibrate: the load did not end within {limit_s:.0f} s") from error
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MachineError(f"power calibrate: the load failed: {last}; it needs torch with CUDA in this Python")
    return [(start_ns, end_ns) for start_ns, end_ns in json.loads(lines[-1])]


def _readings(gpu: GpuTrace, trace: PowerTrace, origin_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """The driver's series, else the polled power at its changes."""
    samples = samples_of(gpu.series, trace.offsets, origin_ns)
    if len(samples.time_s):
        return samples.time_s, samples.power_w
    power_mw = polled_power_mw(gpu.polled)
    changed = np.flatnonzero((np.diff(power_mw, prepend=MISSING) != 0) & (power_mw != MISSING))
    time_s = (np.asarray(gpu.polled.t_ns, dtype=np.int64)[changed] - origin_ns) / 1e9
    return time_s, power_mw[changed] / 1e3


def _doubt(fit: SensorFit | None) -> str | None:
    if fit is None:
        return "too few readings of power"
    swing_w = fit.response.high_w - fit.response.low_w
    if swing_w < LEAST_SWING_W:
        return f"the load moved the power by {swing_w:.1f} W only"
    if fit.response.off_fraction > MOST_OFF_FRACTION:
        off = short_percent(fit.response.off_fraction)
        return f"the readings are {off} of the load's swing off every response tried"
    return None


def _model(gpu: GpuTrace, driver: str, fit: SensorFit) -> SensorModel:
    """The fit as a model; where the kind of board is known, a lag of its counter as wide as that has it."""
    shipped, response = shipped_model(gpu.name, driver), fit.response
    return SensorModel(
        name=f"calibrated {gpu.name}",
        source=f"pybench power calibrate, {time.strftime('%Y-%m-%d')}, driver {driver}",
        calibrated=True,
        period_s=fit.period_s,
        # A window far shorter than the period behind a low-pass is a sample of it.
        window_s=response.window_s if response.tau_s < fit.period_s / 2 else fit.period_s,
        tau_s=response.tau_s,
        tau_sigma_s=fit.tau_sigma_s or LAG_MARGIN_S,
        lag_low_s=min(shipped.lag_low_s, response.lag_s - LAG_MARGIN_S),
        lag_high_s=max(shipped.lag_high_s, response.lag_s + LAG_MARGIN_S),
        average_span_s=shipped.average_span_s,
    )
