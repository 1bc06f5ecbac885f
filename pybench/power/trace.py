"""A power trace: what NVML reported of every GPU. Times are CLOCK_MONOTONIC nanoseconds where no other is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pybench.power.sensor import SensorModel

TRACE_VERSION = 4

MISSING = -1
"""A polled value that could not be read; integer columns can't hold ``None``."""

DeviceState = Literal["ok", "lost", "no_permission", "not_supported", "error", "stalled"]
Scope = Literal["gpu_board", "module"]


@dataclass(frozen=True, kw_only=True)
class CounterColumns:
    """Energy counter. Each value, in mJ since the driver loaded, was read between ``before_ns`` and ``after_ns``."""

    before_ns: Sequence[int] = ()
    after_ns: Sequence[int] = ()
    energy_mj: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class SeriesColumns:
    """The driver's own sample buffer, every 20 ms on recent boards, stamped by CLOCK_REALTIME as it was first set."""

    realtime_ns: Sequence[int] = ()
    power_mw: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class PolledColumns:
    """Power fields, read each second with a series of samples less than 0.1 s apart, else every 0.1 s.

    ``average_mw`` and ``memory_mw`` trail by their own span, 1 s on H200.
    """

    t_ns: Sequence[int] = ()
    instant_mw: Sequence[int] = ()
    average_mw: Sequence[int] = ()
    memory_mw: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class SlowColumns:
    """What changes slowly, read each second and at anchors; ``clock_event_reasons`` is NVML's bit mask."""

    t_ns: Sequence[int] = ()
    temperature_c: Sequence[int] = ()
    sm_clock_mhz: Sequence[int] = ()
    memory_clock_mhz: Sequence[int] = ()
    gpu_utilization_percent: Sequence[int] = ()
    clock_event_reasons: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class StallColumns:
    """Driver calls longer than 1 s; ``end_ns`` is the trace's end for one that had not come back."""

    start_ns: Sequence[int] = ()
    end_ns: Sequence[int] = ()


PLANES = {
    "counter": CounterColumns,
    "series": SeriesColumns,
    "polled": PolledColumns,
    "slow": SlowColumns,
    "stalls": StallColumns,
}
"""Columns of each GPU, by their field's name."""


@dataclass(frozen=True, kw_only=True)
class OffsetColumns:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, at the start, at every drain of a series and at the end.

    ``set_by_ns`` is what somebody set the wall clock by since recording began; the offset is without it.
    """

    t_ns: Sequence[int] = ()
    realtime_offset_ns: Sequence[int] = ()
    set_by_ns: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class GpuTrace:
    """One GPU. ``state`` is how it ended: what was recorded before a loss stays.

    ``index`` is NVML's, ``None`` for a GPU that could not be opened. ``sensor`` is what its readings average over,
    ``None`` for an unknown board.

    ``missed_ticks`` counts readings that were due and skipped, ``dropped_records`` readings made that found no room.
    ``capabilities`` names the readings that work: counter, series, instant, average, memory, temperature, sm_clock,
    memory_clock, utilization, clock_event_reasons. ``shared_board`` is true where another GPU sits on the same board.
    """

    uuid: str
    index: int | None
    name: str
    state: DeviceState = "ok"
    failed_calls: int = 0
    missed_ticks: int = 0
    dropped_records: int = 0
    capabilities: tuple[str, ...] = ()
    scope: Scope = "gpu_board"
    mig: bool | None = None
    shared_board: bool | None = None
    sensor: SensorModel | None = None
    counter: CounterColumns = CounterColumns()
    series: SeriesColumns = SeriesColumns()
    polled: PolledColumns = PolledColumns()
    slow: SlowColumns = SlowColumns()
    stalls: StallColumns = StallColumns()

    @property
    def is_module(self) -> bool:
        """Whether the sensor includes the CPU of the GPU's module, by the driver or by what is known of the board."""
        return self.scope == "module" or (self.sensor is not None and self.sensor.module)


@dataclass(frozen=True, kw_only=True)
class PowerTrace:
    """All GPUs of one recording. Offsets that differ mean that the wall clock was slewed.

    ``boot_id`` names the boot whose CLOCK_MONOTONIC the times are; ``driver`` is the driver's version;
    ``num_pollers`` is how many threads read the GPUs.
    """

    start_ns: int
    end_ns: int
    gpus: tuple[GpuTrace, ...]
    offsets: OffsetColumns = OffsetColumns()
    boot_id: str | None = None
    driver: str = ""
    num_pollers: int = 1
