"""How each GPU stood in a window of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from statistics import median

from pybench.model.health import GpuConditions
from pybench.model.trace import MISSING, GpuTrace, PowerTrace

_HZ_PER_MHZ = 1e6


def conditions_in(trace: PowerTrace, start_ns: int, end_ns: int) -> tuple[GpuConditions, ...]:
    """Clocks, temperature and clock event reasons of every GPU between two CLOCK_MONOTONIC times."""
    return tuple(_conditions(gpu, start_ns, end_ns) for gpu in trace.gpus)


def _conditions(gpu: GpuTrace, start_ns: int, end_ns: int) -> GpuConditions:
    inside = [place for place, t_ns in enumerate(gpu.slow.t_ns) if start_ns <= t_ns <= end_ns]
    clocks_mhz = _known(gpu.slow.sm_clock_mhz, inside)
    temperatures_c = _known(gpu.slow.temperature_c, inside)
    reasons = _known(gpu.slow.clock_event_reasons, inside)
    return GpuConditions(
        uuid=gpu.uuid,
        index=gpu.index,
        sm_clock_hz=median(clocks_mhz) * _HZ_PER_MHZ if clocks_mhz else None,
        temperature_c=float(max(temperatures_c)) if temperatures_c else None,
        clock_event_reasons=reduce(or_, reasons) if reasons else None,
    )


def _known(values: Sequence[int], places: list[int]) -> list[int]:
    """Values at ``places``; a column that was never filled has none."""
    return [int(values[place]) for place in places if place < len(values) and values[place] != MISSING]
