"""Flags of a GPU's joules: reasons to doubt them.

=================== ================================================================================================
uncalibrated        pybench has not measured this kind of sensor: the model is from a publication, or the most cautious
part_time_sensor    the sensor sees the power only part of the time: a load in step with it is invisible
sensor_misfit       counter and series do not follow each other as the sensor model predicts
insufficient        no source spans the window, or the bound would reach 0 J: energy unknown
gap                 more than 0.3 s of the window lack samples; the counter's sum is right if it ends outside the gap
stalled             a driver call took more than a second within the window
counter_reset       the counter fell within the window: the driver was reloaded
counter_vs_power    counter and power differ by more than 3 % and more than their bounds; the bound holds both
alias_risk          the load keeps step with the sensor's samples, which see it at few phases: truth may be outside
clock_step          the wall clock, which stamps the series, was set while recording; later stamps were moved back
glitch              impossible readings (0 W, MW) of the series or the polled average were left out
dropped_records     the recorder ran out of room and lost readings
short_window        a phase was shorter than the sensor's sampling period
dithered            the joules of pauses between steps were subtracted, and their uncertainty added
throttled           a thermal or power-brake slowdown was active in the window or next to it
temperature_drift   the GPU warmed or cooled by more than 10 °C, which changes its leakage power
mig                 the power of instances can't be separated
shared_board        another GPU is on the same board and in its sensor
module_scope        the sensor includes the module's CPU
no_sampler          the GPU's host samples no power
clocks_apart        the clock of the GPU's host is not known closely enough for its joules
lost, no_permission, not_supported, error   the GPU's state when recording ended
=================== ================================================================================================
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pybench.core.node_driver import is_throttled
from pybench.power.trace import MISSING, GpuTrace

# State is read each second, and soon after an end of a window: readings this near to an end count.
NEAREST_NS = 1_500_000_000


def around(
    values: Sequence[int], times_ns: Sequence[int], start_ns: int, end_ns: int, nearest_ns: int = NEAREST_NS
) -> npt.NDArray[np.int64]:
    """Known values within the window, and the nearest on each side if it is within ``nearest_ns``.

    Times ascend. ``values`` may be empty: a column that was never filled.
    """
    if len(values) != len(times_ns):
        return np.array([], dtype=np.int64)
    first, end = bisect_left(times_ns, start_ns), bisect_right(times_ns, end_ns)
    if first > 0 and times_ns[first - 1] >= start_ns - nearest_ns:
        first -= 1
    if end < len(times_ns) and times_ns[end] <= end_ns + nearest_ns:
        end += 1
    read = np.asarray(values[first:end], dtype=np.int64)
    return np.asarray(read[read != MISSING])


# Power changes by about 0.2 % per °C, so 10 °C move it by as much as the intervals of a verdict.
DRIFT_C = 10


def state_flags(gpu: GpuTrace, start_ns: int, end_ns: int) -> list[str]:
    """Flags of a window that do not depend on the energy."""
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
        "module_scope": gpu.is_module,
    }
    return [name for name, up in raised.items() if up]
