"""What makes a GPU's joules doubtful, each a word of the record.

=================== ================================================================================================
uncalibrated        the sensor of this kind of board was not measured by pybench: figures from elsewhere, or none
part_time_sensor    the sensor sees the power only part of the time: a load in step with it is invisible
sensor_misfit       counter and series do not follow each other as the sensor model has it
insufficient        no source spans the window, or the bound would reach 0 J: energy unknown
gap                 the series lacks more than 0.3 s of the window; the counter's sum is whole where it ends beyond that
stalled             a driver call hung for more than a second within the window
counter_reset       the counter fell within the window: the driver was reloaded
counter_vs_power    counter and series differ by more than 3 % and more than the series' own doubt
alias_risk          the load keeps step with the sensor's sampling, which sees it at few phases: truth may be outside
clock_step          the wall clock, which stamps the series, was set while recording; later stamps were moved back
glitch              the series, or the polled average, held impossible readings (0 W, MW), which were left out
dropped_records     the recorder ran out of room and lost readings
short_window        a phase lasted less than the sensor's sampling period
dithered            the joules of pauses between steps were taken out, and their doubt added
throttled           a thermal or power-brake slowdown was active, in the window or next to it
temperature_drift   the GPU warmed or cooled by more than 10 °C: leakage power moved with it
mig                 power of instances can't be separated
shared_board        another GPU is on the same board, and in its sensor
module_scope        the sensor includes the module's CPU
no_sampler          the GPU's host samples no power
clocks_apart        the clock of the GPU's host is not known closely enough for its joules
lost, no_permission, not_supported, error   the GPU's state when recording ended
=================== ================================================================================================
"""

from __future__ import annotations

import numpy as np

from pybench.core.gpu_states import is_throttled
from pybench.power.slow_state import around
from pybench.power.trace import GpuTrace, OffsetColumns

# About 0.2 % of a board's power for each degree: 10 °C move it by as much as the intervals we judge by.
DRIFT_C = 10


def clock_was_set(offsets: OffsetColumns) -> bool:
    """Whether the wall clock was set between the offsets."""
    set_by_ns = np.asarray(offsets.set_by_ns, dtype=np.int64)
    return len(set_by_ns) > 0 and bool(np.ptp(set_by_ns))


def state_flags(gpu: GpuTrace, start_ns: int, end_ns: int) -> list[str]:
    """Flags that follow from the trace without any energy."""
    reasons = around(gpu.slow.clock_event_reasons, gpu.slow.t_ns, start_ns, end_ns)
    temperature_c = around(gpu.slow.temperature_c, gpu.slow.t_ns, start_ns, end_ns)
    stall_start_ns = np.asarray(gpu.stalls.start_ns, dtype=np.int64)
    stall_end_ns = np.asarray(gpu.stalls.end_ns, dtype=np.int64)
    stalled = gpu.state == "stalled" or bool(np.any((stall_start_ns < end_ns) & (stall_end_ns > start_ns)))
    raised = {
        gpu.state: gpu.state not in {"ok", "stalled"},
        "stalled": stalled,
        "throttled": is_throttled(int(np.bitwise_or.reduce(reasons))),
        "temperature_drift": bool(len(temperature_c)) and bool(np.ptp(temperature_c) > DRIFT_C),
        "dropped_records": gpu.dropped_records > 0,
        "mig": bool(gpu.mig),
        "shared_board": bool(gpu.shared_board),
        "module_scope": gpu.scope == "module",
    }
    return [name for name, up in raised.items() if up]
