"""How each GPU stood while a point was measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from statistics import median

from pybench.core.clock_events import event_words
from pybench.model.gpu_state import GpuState
from pybench.model.health import GpuConditions
from pybench.model.record import Record


def gpu_states(records: Sequence[Record]) -> tuple[GpuState, ...]:
    """One for each GPU, over attempts: absolute values, which need no other GPU to be compared with."""
    found: dict[str, list[GpuConditions]] = {}
    for gpu in (gpu for record in records for gpu in record.conditions):
        found.setdefault(gpu.uuid, []).append(gpu)
    return tuple(_state(conditions) for conditions in found.values())


def _state(conditions: Sequence[GpuConditions]) -> GpuState:
    clocks_hz = [gpu.sm_clock_hz for gpu in conditions if gpu.sm_clock_hz is not None]
    temperatures_c = [gpu.temperature_c for gpu in conditions if gpu.temperature_c is not None]
    reasons = [gpu.clock_event_reasons for gpu in conditions if gpu.clock_event_reasons is not None]
    return GpuState(
        uuid=conditions[0].uuid,
        index=conditions[0].index,
        sm_clock_hz=median(clocks_hz) if clocks_hz else None,
        temperature_c=max(temperatures_c, default=None),
        held_by=event_words(reduce(or_, reasons)) if reasons else None,
    )
