"""What the power sensors of each GPU can do: how often they change, what a call costs, which scopes work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pynvml

from pybench.compute.energy.anchors import evenest, on_grid
from pybench.compute.energy.grid import candidate_grids
from pybench.compute.energy.readings import Readings
from pybench.compute.energy.series import samples_of
from pybench.machine.gpus import open_library, persist, start_nvml
from pybench.machine.power_recorder import MIN_POLLED_PERIOD_S, PowerRecorder
from pybench.machine.time_limit import returned_within
from pybench.model.errors import MachineError
from pybench.model.trace import MISSING, GpuTrace, PowerTrace

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
    median_s: float | None
    largest_s: float | None
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
    samples = samples_of(gpu, trace.offsets, trace.start_ns)
    spacing_s = np.diff(samples.time_s)
    return SensorProbe(
        uuid=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        scope=gpu.scope,
        capabilities=gpu.capabilities,
        counter_period_s=_counter_period_s(gpu, trace.start_ns),
        series_period_s=samples.period_s,
        series_spacing_s=(float(spacing_s.min()), float(spacing_s.max())) if len(spacing_s) else None,
        series_depth=int(np.sum(samples.time_s < 0)) or None,
        polled_period_s=_polled_period_s(gpu),
        calls=_call_costs(gpu),
    )


def _counter_period_s(gpu: GpuTrace, origin_ns: int) -> float | None:
    readings = Readings.of(gpu.counter, origin_ns)
    placed = [(anchors, grid) for grid in candidate_grids(readings) if (anchors := on_grid(readings, grid))]
    if not placed:
        return None
    return evenest(placed)[1].period_s


def _polled_period_s(gpu: GpuTrace) -> float | None:
    """Median time between changes of the instant power; a board that draws one exact power shows none."""
    instant_mw = np.asarray(gpu.polled.instant_mw, dtype=np.int64)
    times_ns = np.asarray(gpu.polled.t_ns, dtype=np.int64)[instant_mw != MISSING]
    changes_ns = times_ns[1:][np.diff(instant_mw[instant_mw != MISSING]) != 0]
    return float(np.median(np.diff(changes_ns))) / 1e9 if len(changes_ns) > 1 else None


def _call_costs(gpu: GpuTrace) -> tuple[CallCost, ...]:
    if gpu.index is None:
        return ()  # it could not be opened
    try:
        opened = returned_within(CALL_LIMIT_S, lambda: _handle(gpu.uuid))
    except pynvml.NVMLError as error:
        return (CallCost("nvmlDeviceGetHandleByUUID", None, None, str(error)),)
    if not opened:
        return (CallCost("nvmlDeviceGetHandleByUUID", None, None, NO_ANSWER),)
    (handle,) = opened
    calls: dict[str, Callable[[], object]] = {
        "nvmlDeviceGetTotalEnergyConsumption": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "nvmlDeviceGetSamples": lambda: pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, 0),
        "nvmlDeviceGetPowerUsage": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "nvmlDeviceGetFieldValues": lambda: pynvml.nvmlDeviceGetFieldValues(
            handle, [pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE]
        ),
    }
    return tuple(_limited_cost(name, call) for name, call in calls.items())


def _handle(uuid: str) -> object:
    """NVML's handle; the library stays initialised, since a call that hangs may still be in it."""
    if (reason := open_library()) is not None:
        raise MachineError(f"power probe: {reason}")
    start_nvml()
    return persist(pynvml.nvmlDeviceGetHandleByUUID, uuid)


def _limited_cost(name: str, call: Callable[[], object]) -> CallCost:
    found = returned_within(CALL_LIMIT_S, lambda: _cost(name, call))
    return found[0] if found else CallCost(name, None, None, NO_ANSWER)


def _cost(name: str, call: Callable[[], object]) -> CallCost:
    took_s = []
    for _ in range(NUM_CALLS):
        begun_s = time.perf_counter()
        try:
            call()
        except pynvml.NVMLError as error:
            return CallCost(name, None, None, str(error))
        took_s.append(time.perf_counter() - begun_s)
    return CallCost(name, float(np.median(took_s)), max(took_s))
