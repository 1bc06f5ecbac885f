"""Keep activations in host memory between forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

# Smaller tensors, as masks and norms' factors, cost a copy's start and free nothing worth it.
_LEAST_BYTES = 1024
_weak: Any = StorageWeakRef  # untyped
_Kept = torch.Tensor | tuple[torch.Tensor, torch.device]


class ActivationOffload:
    """Copies what autograd saves to pinned host memory and back, on the computing stream; weights stay where they are.

    torch's ``save_on_cpu`` would copy every weight too: autograd saves them as it saves activations. They are known by
    their storage, which sharding makes anew for each layer.
    """

    def __init__(self, model: Any) -> None:
        model = getattr(model, "module", model)  # DDP's wrapper holds it under this name
        self.num_bytes = 0
        self._ends = [model.get_input_embeddings(), model.get_output_embeddings(), model.model.norm]
        self._weights: set[int] = set()
        self._copies: dict[object, tuple[Any, _Kept]] = {}
        for layer in model.model.layers:
            layer.register_forward_pre_hook(self._enter)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around a forward pass."""
        self.num_bytes = 0
        self._note(*self._ends)
        with saved_tensors_hooks(self._pack, self._unpack):
            yield
        self._copies.clear()

    def _enter(self, layer: nn.Module, _arguments: Any) -> None:
        self._note(layer, *self._ends)

    def _note(self, *modules: nn.Module) -> None:
        self._weights = {_storage(weight) for module in modules for weight in module.parameters()}

    def _pack(self, tensor: torch.Tensor) -> _Kept:
        if tensor.nbytes < _LEAST_BYTES or _storage(tensor) in self._weights:
            return tensor
        # Several operations save the same tensor: those that read a layer's input, for one.
        storage = _weak(tensor.untyped_storage())
        view = (storage.cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        known = self._copies.get(view)
        if known is None or known[0].expired():
            known = self._copies[view] = storage, self._copied(tensor)
        return known[1]

    def _copied(self, tensor: torch.Tensor) -> _Kept:
        self.num_bytes += tensor.nbytes
        pinned = tensor.device.type == "cuda"
        host = torch.empty_like(tensor, device="cpu", pin_memory=pinned)  # compiled layers need the same strides
        return host.copy_(tensor, non_blocking=pinned), tensor.device

    def _unpack(self, kept: _Kept) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        host, device = kept
        return host.to(device, non_blocking=True)


def _storage(tensor: torch.Tensor) -> int:
    local = getattr(tensor, "_local_tensor", tensor)
    address: int = local.untyped_storage().data_ptr()
    return address
