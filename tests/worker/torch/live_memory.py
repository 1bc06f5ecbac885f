"""Memory that tensors without data would take, counted while code runs: models of any size, on any machine."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveMemory(TorchDispatchMode):
    """Bytes of the storages that operations within it have made and that still exist."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = 0
        self.peak_bytes = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def restart_peak(self) -> None:
        """From what there is now."""
        self.peak_bytes = self.num_bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in tree_iter(found):
            if isinstance(each, torch.Tensor):
                self._add((each._local_tensor if isinstance(each, DTensor) else each).untyped_storage())
        return found

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.num_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)
        weakref.finalize(storage, self._remove, size)

    def _remove(self, size: int) -> None:
        self.num_bytes -= size
