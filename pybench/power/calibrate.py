"""Calibrate a GPU's power sensor: readings under a load of known square waves, and the model that fits them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pybench.core.numbers import short_percent
from pybench.model.errors import MachineError
from pybench.model.wire import STARTER_VARIABLE
from pybench.power.recorder import PowerRecorder
from pybench.power.samples import polled_power_mw, samples_of
from pybench.power.sensor import SensorModel, shipped_model
from pybench.power.sensor_fit import SensorFit, fit_sensor
from pybench.power.trace import MISSING, GpuTrace, PowerTrace

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
MOST_OFF_FRACTION = 0.10
# A load whose swing is less shows nothing of the sensor.
LEAST_SWING_W = 20.0
LAG_MARGIN_S = 0.010

Span = tuple[int, int]
Schedule = Sequence[tuple[float, float, float]]
RunLoad = Callable[[str, Schedule], list[Span]]


@dataclass(frozen=True)
class Calibration:
    """The result for one GPU; ``reason`` says why there is no model, or why it is not stored."""

    uuid: str
    index: int | None
    board: str
    driver: str
    fit: SensorFit | None
    model: SensorModel | None
    reason: str | None


def calibrate(uuid: str, run_load: RunLoad | None = None) -> tuple[Calibration, PowerTrace]:
    """Run the load on one GPU while recording it, and fit its sensor.

    ``run_load`` takes the UUID and the schedule, and returns when the GPU worked. Raises ``MachineError`` when power
    can't be recorded or the load can't be run.
    """
    with PowerRecorder([uuid]) as recorder:
        time.sleep(LEAD_S)
        spans = (run_load or run_square_load)(uuid, SCHEDULE)
        time.sleep(TAIL_S)
        trace = recorder.stop()
    return fitted(trace, _parts(spans, SCHEDULE)), trace


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
    if done.returncode != 0 or len(lines) < 1:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MachineError(f"power calibrate: the load failed: {last}; it needs torch with CUDA in this Python")
    return [(start_ns, end_ns) for start_ns, end_ns in json.loads(lines[-1])]


def fitted(trace: PowerTrace, parts: Sequence[Sequence[Span]]) -> Calibration:
    """The model that fits the only GPU of a trace, given when it worked in each part of the load."""
    (gpu,) = trace.gpus
    origin_ns = parts[0][0][0]
    time_s, power_w = _readings(gpu, trace, origin_ns)
    spans_s = [[((start - origin_ns) / 1e9, (end - origin_ns) / 1e9) for start, end in part] for part in parts]
    fit = fit_sensor(time_s, power_w, spans_s)
    reason = _doubt(fit)
    model = None if fit is None or reason is not None else _model(gpu, trace.driver, fit)
    return Calibration(gpu.uuid, gpu.index, gpu.name, trace.driver, fit, model, reason)


def _parts(spans: Sequence[Span], schedule: Schedule) -> list[list[Span]]:
    """The spans by part of the schedule."""
    parts, first = [], 0
    for on_s, off_s, length_s in schedule:
        number = int(length_s / (on_s + off_s))
        parts.append(list(spans[first : first + number]))
        first += number
    return parts


def _readings(gpu: GpuTrace, trace: PowerTrace, origin_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """The driver's series, else the polled power at its changes."""
    samples = samples_of(gpu, trace.offsets, origin_ns)
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
