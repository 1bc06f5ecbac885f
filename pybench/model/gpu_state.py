"""How the GPUs of a point stood while it was measured, and how much of each it used."""

from __future__ import annotations

from dataclasses import dataclass


def gpu_label(uuid: str, index: int | None) -> str:
    """``GPU 0``; the UUID where no index is known."""
    return uuid if index is None else f"GPU {index}"


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """How a GPU stood while a point was measured, over all attempts: median clock, highest temperature.

    ``held_by`` names what held its clock down. ``None``: nothing was read, ``()``: nothing held it.
    """

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
