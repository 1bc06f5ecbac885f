"""What kernels read and write, counted on tensors without data."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

PRODUCTS = ("grouped_mm", "aten.mm", "attention")
WRITE_ONLY = ("empty", "zeros")


class Traffic(TorchDispatchMode):
    """Bytes of what each kernel takes and returns; views and products have none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = str(func)
        taken = [each for each in tree_iter((args, kwargs or {})) if isinstance(each, torch.Tensor)]
        made = [each for each in tree_iter(found) if isinstance(each, torch.Tensor)]
        storages = {each.untyped_storage()._cdata for each in taken}
        is_view = not func._schema.is_mutable and any(each.untyped_storage()._cdata in storages for each in made)
        if is_view or name.startswith(("prim.", "aten._unsafe_view")) or any(part in name for part in PRODUCTS):
            return found
        if any(part in name for part in WRITE_ONLY):
            taken = []
        if "empty" not in name:
            self.num_bytes += sum(_bytes(each) for each in (*taken, *made))
        return found


def _bytes(tensor: torch.Tensor) -> int:
    """Each number once, however often an expanded tensor has it."""
    own = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return prod(own) * tensor.element_size()
