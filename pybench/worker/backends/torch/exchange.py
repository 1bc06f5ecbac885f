"""Exchanges of ranks that split layers: forward, and of the gradient in backward (arXiv:2205.05198, 4.2).

Activations are of shape (samples, tokens, hidden units). Where they are split, it is along the tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from torch.distributed import ProcessGroup
from torch.distributed import _functional_collectives as functional

from pybench.worker.backends.common_torch.process_group import all_gather, reduce_scatter

Exchange = Callable[[torch.Tensor, ProcessGroup], torch.Tensor]


def _same(tensor: torch.Tensor, _group: ProcessGroup) -> torch.Tensor:
    return tensor


# A compiler moves and overlaps functional collectives alone. Without one they take the CPU longer than others.


def _sum(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    if torch.compiler.is_compiling():
        total: torch.Tensor = functional.all_reduce(tensor, "sum", group)
    else:
        total = tensor.clone(memory_format=torch.contiguous_format)  # selective checkpointing has kept what came
        distributed.all_reduce(total, group=group)
    return total


def _gather(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    if torch.compiler.is_compiling():
        whole: torch.Tensor = functional.all_gather_tensor(tensor.contiguous(), 1, group)
    else:
        samples, tokens, hidden = tensor.shape
        parts = tensor.new_empty((group.size() * samples, tokens, hidden))
        all_gather(parts, tensor.contiguous(), group=group)
        whole = parts.view(-1, samples, tokens, hidden).transpose(0, 1).flatten(1, 2)
    return whole


def _scatter(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """The sum's part of this rank."""
    if torch.compiler.is_compiling():
        own: torch.Tensor = functional.reduce_scatter_tensor(tensor.contiguous(), "sum", 1, group)
    else:
        samples, tokens, hidden = tensor.shape
        own = tensor.new_empty((samples, tokens // group.size(), hidden))
        parts = tensor.reshape(samples, group.size(), *own.shape[1:]).transpose(0, 1).flatten(0, 1)
        reduce_scatter(own, parts.contiguous(), group=group)
    return own


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: ProcessGroup, forward: Exchange, backward: Exchange) -> Any:
        ctx.group, ctx.exchange = group, backward
        return forward(tensor, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.exchange(gradient, ctx.group), None, None, None


def copied(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """The same for all ranks, which each use it: its gradient is the sum of theirs."""
    return _exchanged(tensor, group, _same, _sum)


def summed(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """The sum of all ranks' tensors."""
    return _exchanged(tensor, group, _sum, _same)


def gathered(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """All ranks' tokens."""
    return _exchanged(tensor, group, _gather, _scatter)


def scattered(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """This rank's tokens of the sum of all ranks' tensors."""
    return _exchanged(tensor, group, _scatter, _gather)


def _exchanged(tensor: torch.Tensor, group: ProcessGroup, forward: Exchange, backward: Exchange) -> torch.Tensor:
    exchanged: torch.Tensor = _Exchange.apply(tensor, group, forward, backward)  # type: ignore[no-untyped-call]
    return exchanged
