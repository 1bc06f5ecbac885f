"""How each GPU stood in a window of a trace."""

from __future__ import annotations

from functools import reduce
from operator import or_
from statistics import fmean, median

from pybench.model.health import GpuConditions
from pybench.power.slow_state import around, within
from pybench.power.trace import GpuTrace, PowerTrace

_HZ_PER_MHZ = 1e6
# A reading of the utilisation covers the last sixth of a second to second, by the kind of GPU (NVML's documentation).
_UTILIZATION_NS = 1_000_000_000


def conditions_in(trace: PowerTrace, start_ns: int, end_ns: int) -> tuple[GpuConditions, ...]:
    """Clocks, temperature, clock event reasons and utilisation of every GPU between two CLOCK_MONOTONIC times.

    Readings nearest to the window's ends count, but of the utilisation: of that only those that cover nothing else.
    """
    return tuple(_conditions(gpu, start_ns, end_ns) for gpu in trace.gpus)


def _conditions(gpu: GpuTrace, start_ns: int, end_ns: int) -> GpuConditions:
    slow = gpu.slow
    columns = (slow.sm_clock_mhz, slow.temperature_c, slow.clock_event_reasons)
    clocks_mhz, temperatures_c, reasons = (around(column, slow.t_ns, start_ns, end_ns).tolist() for column in columns)
    busy_percent = within(slow.gpu_utilization_percent, slow.t_ns, start_ns + _UTILIZATION_NS, end_ns).tolist()
    return GpuConditions(
        uuid=gpu.uuid,
        index=gpu.index,
        sm_clock_hz=median(clocks_mhz) * _HZ_PER_MHZ if clocks_mhz else None,
        temperature_c=float(max(temperatures_c)) if temperatures_c else None,
        clock_event_reasons=reduce(or_, reasons) if reasons else None,
        utilization_fraction=fmean(busy_percent) / 100 if busy_percent else None,
    )
