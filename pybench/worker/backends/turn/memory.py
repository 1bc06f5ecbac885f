"""Tensors of an engine or a trainer that leave the device and return."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor


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
