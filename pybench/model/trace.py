"""A power trace: what NVML said about every GPU while an attempt ran. Times are CLOCK_MONOTONIC nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# 1: first form.
TRACE_VERSION = 1

MISSING = -1
"""A polled value that could not be read; integer columns can't hold ``None``."""

DeviceState = Literal["ok", "lost", "no_permission", "not_supported", "error", "stalled"]


@dataclass(frozen=True, kw_only=True)
class CounterColumns:
    """Energy counter. Each value, in mJ since the driver loaded, was read between ``before_ns`` and ``after_ns``."""

    before_ns: Sequence[int] = ()
    after_ns: Sequence[int] = ()
    energy_mj: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class SeriesColumns:
    """The driver's own sample buffer, every 20 ms on recent boards; its wall-clock stamps made monotonic."""

    t_ns: Sequence[int] = ()
    power_mw: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class PolledColumns:
    """Fields read at about 20 Hz. ``average_mw`` is a trailing average (1 s); ``clock_event_reasons`` a bit mask."""

    t_ns: Sequence[int] = ()
    instant_mw: Sequence[int] = ()
    average_mw: Sequence[int] = ()
    temperature_c: Sequence[int] = ()
    sm_clock_mhz: Sequence[int] = ()
    clock_event_reasons: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class GpuTrace:
    """One GPU. ``state`` is how it ended: what was recorded before a loss stays."""

    uuid: str
    index: int
    name: str
    state: DeviceState = "ok"
    failed_calls: int = 0
    counter: CounterColumns = CounterColumns()
    series: SeriesColumns = SeriesColumns()
    polled: PolledColumns = PolledColumns()


@dataclass(frozen=True, kw_only=True)
class PowerTrace:
    """All GPUs of one attempt.

    ``realtime_offset_*_ns`` is CLOCK_REALTIME minus CLOCK_MONOTONIC at both ends: they differ when the wall clock was
    stepped. ``missed_ticks`` counts readings that were due and skipped.
    """

    start_ns: int
    end_ns: int
    gpus: tuple[GpuTrace, ...]
    missed_ticks: int = 0
    realtime_offset_start_ns: int = 0
    realtime_offset_end_ns: int = 0
