"""The health that GPUs report, and their state during work."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.text import amount_text


def gpu_label(uuid: str, index: int | None) -> str:
    """``GPU 0``; the UUID where no index is known."""
    return uuid if index is None else f"GPU {index}"


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """A GPU over a point's attempts: median clock, highest temperature, what held it; ``None``: nothing was read."""

    uuid: str
    index: int | None
    sm_clock_hz: float | None
    temperature_c: float | None
    held_by: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """How much of one GPU a point used: the most over its attempts, of utilisation the mean.

    ``peak_memory_bytes`` is the peak of the rank's tensors, ``peak_reserved_memory_bytes`` of its allocator, and
    ``device_memory_used_bytes`` the memory of all processes at the end of an attempt. ``utilization_fraction`` is the
    driver's: the share of time in which any kernel ran. ``num_layers`` is how many of the model's layers lie on it,
    where a library chose them (``device_map``). Unknown is ``None``.
    """

    uuid: str
    peak_memory_bytes: float | None = None
    peak_reserved_memory_bytes: float | None = None
    device_memory_used_bytes: float | None = None
    utilization_fraction: float | None = None
    num_layers: int | None = None


@dataclass(frozen=True, kw_only=True)
class GpuCounters:
    """One GPU's counts of trouble: ECC errors since the driver was loaded, rows of its memory that were remapped.

    ``remap_pending`` is a row that waits for a reset, ``remap_failed`` one that found no spare. ``None`` where
    the driver does not report it, or the memory has no ECC.
    """

    uuid: str
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None


@dataclass(frozen=True, kw_only=True)
class PcieLink:
    """One GPU's link: the best that was seen, for an idle link saves power by slowing down, and the best it can do."""

    uuid: str
    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None

    @property
    def speed(self) -> tuple[int, int]:
        """Orders links by generation, then width; 0 where unknown."""
        return self.generation or 0, self.width or 0


@dataclass(frozen=True, kw_only=True)
class Xid:
    """An XID of a GPU, or with ``of_switch`` a fatal SXid of an NVSwitch, of line ``sequence`` of the kernel's log."""

    sequence: int
    pci_bus_id: str
    number: int
    of_switch: bool = False

    def __str__(self) -> str:
        return f"SXid {self.number} of an NVSwitch" if self.of_switch else f"XID {self.number}"


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process on a GPU, seen from ``first_ns`` to ``last_ns`` (CLOCK_MONOTONIC), and the most memory that it held."""

    uuid: str
    pid: int
    name: str | None
    memory_bytes: int | None
    first_ns: int
    last_ns: int

    def __str__(self) -> str:
        held = "" if self.memory_bytes is None else f", {amount_text(self.memory_bytes)}"
        return f"{self.pid} ({self.name or 'of unknown name'}{held})"


@dataclass(frozen=True, kw_only=True)
class Health:
    """The GPUs of an attempt before and after it, its links during it, and the XIDs that came.

    ``after`` is empty when the driver did not answer in time, ``xids`` is ``None`` where the kernel's log is closed.
    ``others`` are processes that no worker of the run is, as far as it can be known.
    """

    before: tuple[GpuCounters, ...]
    after: tuple[GpuCounters, ...]
    links: tuple[PcieLink, ...]
    xids: tuple[Xid, ...] | None
    others: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GpuConditions:
    """How one GPU stood while an attempt was measured: median clock, highest temperature, NVML's mask of clock events.

    ``utilization_fraction`` is the mean share of time in which any kernel ran, from the window's second second on: a
    reading covers up to a second. ``None``: nothing was read in that time, or the GPU could not be opened.
    """

    uuid: str
    index: int | None
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    clock_event_reasons: int | None = None
    utilization_fraction: float | None = None
