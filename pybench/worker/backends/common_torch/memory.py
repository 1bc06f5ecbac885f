"""Memory this rank's backend held at most, point by point."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from pybench.model.wire import Metric, WorkOrder
from pybench.worker.backend import Session, Workload

_BYTES_PER_KIB = 1024
_PROC = Path("/proc/self")
# proc(5), clear_refs: the value that sets the peak resident set back to the present one.
_RESET_PEAK = "5"


class ResidentSet:
    """This process's memory. Where its peak can't be set back, an earlier point's hides a smaller one of this point."""

    def __init__(self) -> None:
        self._hidden_bytes = 0

    def forget_peak(self) -> None:
        """Begin anew."""
        try:
            (_PROC / "clear_refs").write_text(_RESET_PEAK)
            self._hidden_bytes = 0
        except OSError:
            self._hidden_bytes = self._highest_bytes()

    def peak_bytes(self) -> int | None:
        """The most since :meth:`forget_peak`, ``None`` where that is unknown."""
        highest = self._highest_bytes()
        return highest if highest > self._hidden_bytes else None

    @staticmethod
    def _highest_bytes() -> int:
        lines = (_PROC / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * _BYTES_PER_KIB


_resident = ResidentSet()


def memory_metrics(device: torch.device) -> tuple[Metric, ...]:
    """Peak device memory, and what all processes hold there now.

    On the CPU the process's peak resident set, none where that is not this point's own.
    """
    if device.type == "cpu":
        peak = _resident.peak_bytes()
        return () if peak is None else (Metric(name="peak_memory_bytes", value=peak, unit="bytes"),)
    allocated_bytes, reserved_bytes = allocator_peak_bytes(device)
    return (
        Metric(name="peak_memory_bytes", value=allocated_bytes, unit="bytes"),
        Metric(name="peak_reserved_memory_bytes", value=reserved_bytes, unit="bytes"),
        device_memory_used(device),
    )


def allocator_peak_bytes(device: torch.device) -> tuple[int, int]:
    """Peak bytes of a GPU in this process's tensors, and peak bytes that torch's allocator reserved for it."""
    return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)


def device_memory_used(device: torch.device) -> Metric:
    """Memory of a GPU that all processes use now."""
    free, total = torch.cuda.mem_get_info(device)
    return Metric(name="device_memory_used_bytes", value=total - free, unit="bytes")


def with_own_memory(session: Session, devices: Sequence[torch.device]) -> Session:
    """``session`` that frees the previous point's memory and resets the peak before each point.

    The collector skips the objects that exist then, mostly of libraries, until the timing loop ends: a pass over the
    objects of a training takes 0.1 s or more.
    """

    @contextmanager
    def begin(order: WorkOrder) -> Iterator[Workload]:
        forget_peak(devices)
        gc.freeze()
        with session(order) as workload:
            yield workload

    return begin


def forget_peak(devices: Sequence[torch.device]) -> None:
    """Free unused memory and reset the peaks."""
    gc.collect()
    _resident.forget_peak()
    for device in devices:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
