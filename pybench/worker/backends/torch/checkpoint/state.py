"""The live tensors of a trainer that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from pybench.model.workloads.checkpoint import Checkpoint
from pybench.worker.backends.turn.digest import digest

State = dict[str, torch.Tensor]
"""Tensors by name, each rank's own part where they are split; loading writes into them."""


def state_of(settings: Checkpoint, model: Any, optimizer: torch.optim.Optimizer) -> State:
    """Of a model, whole or wrapped by DDP, and its optimizer; names are those of the model without the wrapper."""
    named = list(getattr(model, "module", model).named_parameters())
    kept = {name: weight for name, weight in named if settings.contents != "adapters" or weight.requires_grad}
    found = {f"model.{name}": weight.detach() for name, weight in kept.items()}
    if settings.contents == "trainer":
        found.update(_optimizer_states(named, optimizer))
    return found


def _optimizer_states(named: Any, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    for name, weight in named:
        for key, value in optimizer.state.get(weight, {}).items():
            if isinstance(value, torch.Tensor):
                yield f"optimizer.{name}.{key}", value


def num_bytes(state: State) -> int:
    """Bytes of all whole tensors; a split tensor counts once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def digests(state: State) -> dict[str, int]:
    """A number for the bits of this rank's part of each tensor."""
    return {name: digest(local(tensor)) for name, tensor in state.items()}


@torch.no_grad()
def overwrite(state: State) -> None:
    """Overwrite every number with -1, counters and weights alike: no trainer has this value."""
    for tensor in state.values():
        local(tensor).fill_(-1)
