"""Clocks, temperature, clock event reasons and utilisation of each GPU in and around a window."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import reduce
from operator import or_
from statistics import fmean, median

import numpy as np
import numpy.typing as npt

from pybench.model.health import GpuConditions
from pybench.power.trace import MISSING, GpuTrace, PowerTrace

_HZ_PER_MHZ = 1e6
# A utilisation reading covers up to a second before it (NVML's documentation: a sixth to one second, by product).
_UTILIZATION_NS = 1_000_000_000
# State is read each second, and soon after an end of a window: readings this near to an end count.
NEAREST_NS = 1_500_000_000


def conditions_in(trace: PowerTrace, start_ns: int, end_ns: int) -> tuple[GpuConditions, ...]:
    """Conditions of every GPU between two CLOCK_MONOTONIC times.

    Readings next to the window count, too, except utilisation: only readings that cover nothing else count.
    """
    return tuple(_conditions(gpu, start_ns, end_ns) for gpu in trace.gpus)


def _conditions(gpu: GpuTrace, start_ns: int, end_ns: int) -> GpuConditions:
    slow = gpu.slow
    columns = (slow.sm_clock_mhz, slow.temperature_c, slow.clock_event_reasons)
    clocks_mhz, temperatures_c, reasons = (around(column, slow.t_ns, start_ns, end_ns).tolist() for column in columns)
    first = bisect_left(slow.t_ns, start_ns + _UTILIZATION_NS)
    busy_percent = _known(slow.gpu_utilization_percent, slow.t_ns, first, bisect_right(slow.t_ns, end_ns)).tolist()
    return GpuConditions(
        uuid=gpu.uuid,
        index=gpu.index,
        sm_clock_hz=median(clocks_mhz) * _HZ_PER_MHZ if clocks_mhz else None,
        temperature_c=float(max(temperatures_c)) if temperatures_c else None,
        clock_event_reasons=reduce(or_, reasons) if reasons else None,
        utilization_fraction=fmean(busy_percent) / 100 if busy_percent else None,
    )


def around(values: Sequence[int], times_ns: Sequence[int], start_ns: int, end_ns: int) -> npt.NDArray[np.int64]:
    """Known values within the window, and the nearest on each side if it is within ``NEAREST_NS``.

    Times ascend. ``values`` may be empty: a column that was never filled.
    """
    first, end = bisect_left(times_ns, start_ns), bisect_right(times_ns, end_ns)
    if first > 0 and times_ns[first - 1] >= start_ns - NEAREST_NS:
        first -= 1
    if end < len(times_ns) and times_ns[end] <= end_ns + NEAREST_NS:
        end += 1
    return _known(values, times_ns, first, end)


def _known(values: Sequence[int], times_ns: Sequence[int], first: int, end: int) -> npt.NDArray[np.int64]:
    if len(values) != len(times_ns):
        return np.array([], dtype=np.int64)
    read = np.asarray(values[first:end], dtype=np.int64)
    return np.asarray(read[read != MISSING])
