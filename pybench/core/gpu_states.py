"""How each GPU stood while a point was measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from statistics import median

from pybench.model.health import GpuConditions, GpuState
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


POWER_LIMIT = "power limit"
_WORDS = {
    0x04: POWER_LIMIT,
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_THROTTLE_REASONS = sum(bit for bit, word in _WORDS.items() if word != POWER_LIMIT)


def event_words(reasons: int) -> tuple[str, ...]:
    """Names of those bits of NVML's mask that slow a GPU at work; idleness and clocks set by hand are none."""
    return tuple(word for bit, word in _WORDS.items() if reasons & bit)


def is_throttled(reasons: int) -> bool:
    """Whether a thermal or power-brake slowdown was active; a board at its power limit is no fault."""
    return bool(reasons & _THROTTLE_REASONS)
