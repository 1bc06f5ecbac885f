"""Probe the power sensors of each GPU: update periods, call costs, working scopes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pybench.machine.nvml import NvmlError, answer, begin, constant, returned_within
from pybench.power.counter import Readings, candidate_grids
from pybench.power.recorder import MIN_POLLED_PERIOD_S, PowerRecorder
from pybench.power.samples import samples_of
from pybench.power.trace import MISSING, GpuTrace, PowerTrace

# Long enough for thirty publications of 100 ms; read far more often than any known board publishes.
PROBE_S = 3.0
PROBE_PERIOD_S = 0.005
NUM_CALLS = 20
# All of them together; a healthy driver needs a tenth of a second.
CALL_LIMIT_S = 5.0
NO_ANSWER = f"no answer within {CALL_LIMIT_S:g} s"


@dataclass(frozen=True)
class CallCost:
    """Latency of one NVML call in seconds: median and largest of a few, and NVML's answer when it fails."""

    call: str
    median_s: float | None = None
    largest_s: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class SensorProbe:
    """One GPU's sensors. Unknown is ``None``."""

    uuid: str
    index: int | None
    name: str
    scope: str
    capabilities: tuple[str, ...]
    counter_period_s: float | None
    series_period_s: float | None
    series_spacing_s: tuple[float, float] | None
    series_depth: int | None
    polled_period_s: float | None
    calls: tuple[CallCost, ...]


def probe_sensors(uuids: Sequence[str]) -> tuple[SensorProbe, ...]:
    """Look at every GPU for a few seconds, all at once. Raises ``MachineError`` when power can't be sampled."""
    with PowerRecorder(uuids, counter_period_s=PROBE_PERIOD_S, polled_period_s=MIN_POLLED_PERIOD_S) as sampler:
        time.sleep(PROBE_S)
        trace = sampler.stop()
    return tuple(_probe(gpu, trace) for gpu in trace.gpus)


def _probe(gpu: GpuTrace, trace: PowerTrace) -> SensorProbe:
    readings = Readings.of(gpu.counter, trace.start_ns)
    grids = [grid for grid in candidate_grids(readings) if grid.place(readings)]
    samples = samples_of(gpu.series, trace.offsets, trace.start_ns)
    spacing_s = np.diff(samples.time_s)
    # The fields are first read right after the driver's samples.
    first_poll_s = (gpu.polled.t_ns[0] - trace.start_ns) / 1e9 if len(gpu.polled.t_ns) else 0.0
    instant_mw = np.asarray(gpu.polled.instant_mw, dtype=np.int64)
    times_ns = np.asarray(gpu.polled.t_ns, dtype=np.int64)[instant_mw != MISSING]
    # A board that draws one exact power shows no change of the instant power.
    changes_ns = times_ns[1:][np.diff(instant_mw[instant_mw != MISSING]) != 0]
    return SensorProbe(
        uuid=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        scope=gpu.scope,
        capabilities=gpu.capabilities,
        counter_period_s=max(grids, key=lambda grid: grid.weight).period_s if grids else None,
        series_period_s=samples.period_s,
        series_spacing_s=(float(spacing_s.min()), float(spacing_s.max())) if len(spacing_s) else None,
        series_depth=int(np.sum(samples.time_s < first_poll_s)) or None,
        polled_period_s=float(np.median(np.diff(changes_ns))) / 1e9 if len(changes_ns) > 1 else None,
        calls=_call_costs(gpu),
    )


def _call_costs(gpu: GpuTrace) -> tuple[CallCost, ...]:
    if gpu.index is None:
        return ()  # it could not be opened

    def handle() -> object:
        """NVML's; the library stays initialised, since a call that hangs may still be in it."""
        begin()
        return answer("DeviceGetHandleByUUID", gpu.uuid)

    try:
        opened, fault = returned_within(CALL_LIMIT_S, handle), NO_ANSWER
    except NvmlError as error:
        opened, fault = [], str(error)
    if not opened:
        return (CallCost("nvmlDeviceGetHandleByUUID", error=fault),)
    fields = [constant("FI_DEV_POWER_INSTANT"), constant("FI_DEV_POWER_AVERAGE")]
    calls: dict[str, tuple[object, ...]] = {
        "DeviceGetTotalEnergyConsumption": (),
        "DeviceGetSamples": (constant("TOTAL_POWER_SAMPLES"), 0),
        "DeviceGetPowerUsage": (),
        "DeviceGetFieldValues": (fields,),
    }
    costs = []
    for name, rest in calls.items():
        cost = returned_within(CALL_LIMIT_S, partial(_cost, name, *opened, *rest))
        costs.extend(cost or [CallCost(f"nvml{name}", error=NO_ANSWER)])
    return tuple(costs)


def _cost(name: str, *arguments: object) -> CallCost:
    took_s = []
    for _ in range(NUM_CALLS):
        begun_s = time.perf_counter()
        try:
            answer(name, *arguments)
        except NvmlError as error:
            return CallCost(f"nvml{name}", error=str(error))
        took_s.append(time.perf_counter() - begun_s)
    return CallCost(f"nvml{name}", float(np.median(took_s)), max(took_s))
