"""Memory of engine and trainer that take turns: tensors that leave the device and return, and a rank's peak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch.distributed.tensor import DTensor

from pybench.model.wire import Metric
from pybench.worker.backends.common_torch.memory import (
    allocator_peak_bytes,
    device_memory_used,
    memory_metrics,
    peak_metrics,
)


class Held(NamedTuple):
    """Bytes of an allocator: in tensors, and reserved from the driver."""

    allocated: int
    reserved: int

    def beside(self, other: Held) -> Held:
        """Both together."""
        return Held(self.allocated + other.allocated, self.reserved + other.reserved)

    def without(self, other: Held) -> Held:
        """The difference of the two."""
        return Held(self.allocated - other.allocated, self.reserved - other.reserved)


NOTHING = Held(0, 0)


class PeakMemory:
    """Peak bytes over all phases, less the bytes of ``asleep``, which the allocator counts without memory.

    Not known from the first phase on for which ``asleep`` gives ``None``.
    """

    def __init__(self, device: torch.device, asleep: Callable[[], Held | None]) -> None:
        self._device = device
        self._asleep = asleep
        self._before = NOTHING
        self._most: Held | None = NOTHING

    def end_phase(self) -> None:
        """Take the peak since the phase before; only the end of a phase in which the engine slept in or woke up."""
        if self._device.type == "cpu" or self._most is None:
            return
        asleep = self._asleep()
        if asleep is None:
            self._most = None
            return
        held = (Held(*allocator_peak_bytes(self._device)) if asleep == self._before else _now(self._device)).without(
            asleep
        )
        self._most = Held(*map(max, self._most, held))
        self._before = asleep
        torch.cuda.reset_peak_memory_stats(self._device)

    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of :func:`memory_metrics`."""
        if self._device.type == "cpu":
            return memory_metrics(self._device)
        peaks = () if self._most is None else peak_metrics(*self._most)
        return (*peaks, device_memory_used(self._device))


def _now(device: torch.device) -> Held:
    return Held(torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))


class Parked:
    """The storages of ``tensors``, on the device or away from it.

    A storage is shrunk to nothing and later grown again, so that parameters, their views and an optimizer's states stay
    the objects that they are. Host copies are pinned on GPUs, made once, and kept.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        storages = {id_of(tensor): local(tensor).untyped_storage() for tensor in tensors}
        self._storages = [storage for storage in storages.values() if storage.nbytes()]
        self._sizes = [storage.nbytes() for storage in self._storages]
        self._views = [torch.empty(0, dtype=torch.uint8, device=one.device).set_(one) for one in self._storages]
        self._copies: list[torch.Tensor] = []
        self._kept = False

    @property
    def num_bytes(self) -> int:
        """Size of all of them on the device."""
        return sum(self._sizes)

    @property
    def host_bytes(self) -> int:
        """Size of the copies in host memory."""
        return sum(copy.nbytes for copy in self._copies)

    @torch.no_grad()
    def leave(self, *, keep: bool) -> None:
        """Free the device's memory; with ``keep`` what it holds is copied to the host first."""
        if keep:
            self._copies = self._copies or [
                torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda")
                for storage in self._storages
            ]
            for copy, view in zip(self._copies, self._views, strict=True):
                copy.copy_(view, non_blocking=True)
            self._wait()
        self._kept = keep
        for storage in self._storages:
            storage.resize_(0)

    @torch.no_grad()
    def come_back(self) -> None:
        """Allocate memory again, and restore the copy if there is one."""
        for storage, size in zip(self._storages, self._sizes, strict=True):
            storage.resize_(size)
        if self._kept:
            for copy, view in zip(self._copies, self._views, strict=True):
                view.copy_(copy, non_blocking=True)
            self._wait()

    def _wait(self) -> None:
        if any(storage.device.type == "cuda" for storage in self._storages):
            torch.cuda.synchronize()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that may be split."""
    if isinstance(tensor, DTensor):
        own: torch.Tensor = tensor.to_local()
        return own
    return tensor


def id_of(tensor: torch.Tensor) -> int:
    """The same for all tensors of one storage."""
    return int(local(tensor).untyped_storage()._cdata)  # noqa: SLF001 - storages have no other identity
