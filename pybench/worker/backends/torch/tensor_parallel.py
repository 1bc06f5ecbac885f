"""Tensor parallelism after Megatron-LM (arXiv:1909.08053): split columns, then rows, then one sum for each block.

Weights are DTensors: whoever saves them, shards them further or computes their norm knows the whole by that. Layers
compute with this rank's parts as plain tensors: an operation on DTensors is dispatched in Python, and takes the CPU
several times as long. GPUs that have a quarter of each layer would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, distribute_tensor
from torch.distributed.tensor import Shard as Along
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.functional import embedding, linear

from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import all_gather, reduce_scatter

_COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_ROWS = ("o_proj", "down_proj")
# Gradient placement of a whole parameter that each rank uses for a part of the tokens or heads.
_SUMMED_LATER = (Partial(),)


def replica_mesh(device: torch.device, size: int, replicas: int = 1) -> DeviceMesh:
    """The ``size`` consecutive ranks of this rank's replica, of ``replicas``; collective over all ranks."""
    mesh = init_device_mesh(device.type, (replicas, size), mesh_dim_names=("data_parallel", "tensor_parallel"))
    return mesh["tensor_parallel"]


def split_linears(model: nn.Module, mesh: DeviceMesh, *, tokens_split: bool = False) -> None:
    """Have each rank of ``mesh`` hold its part of each linear layer. The plan refused sizes that it does not divide.

    A layer split in columns has whole inputs and this rank's outputs. A layer split in rows has this rank's inputs and
    the sum as output, or with ``tokens_split`` its tokens of the sum: of shape (1, tokens, hidden units), for whatever
    samples. An adapter's halves go with the layer: its second half with columns, its first with rows.
    """
    for name, module in list(model.named_modules()):
        parts = name.split(".")
        layer = next((part for part in parts if part in {*_COLUMNS, *_ROWS, "lm_head"}), None)
        whole = ("lora_A" in parts and layer in _COLUMNS) or ("lora_B" in parts and layer in _ROWS)
        if not isinstance(module, nn.Linear) or layer is None or whole:
            continue
        if layer == "lm_head":
            parallelize_module(module, mesh, ColwiseParallel(output_layouts=Replicate()))
        elif layer in _COLUMNS:
            _distribute(module, mesh, weight=Along(0), bias=Along(0))
            module.__class__ = _Columns
        else:
            _distribute(module, mesh, weight=Along(1), bias=Replicate())
            rows: Any = module
            rows.__class__ = _Rows
            rows.group, rows.tokens_split = mesh.get_group(), tokens_split


def split_vocabulary(module: nn.Module, mesh: DeviceMesh) -> None:
    """Have each rank hold its part of an embedding: outputs are a rank's share of all samples' tokens.

    Raises :class:`~pybench.worker.backend.UnsupportedError` for an embedding that does more than to look up.
    """
    if type(module) is not nn.Embedding:
        raise UnsupportedError(f"sequence_parallel splits an embedding, and no {type(module).__name__}")
    group, whole_size = mesh.get_group(), module.num_embeddings
    _distribute(module, mesh, weight=Along(0))
    part: Any = module
    part.__class__ = _Vocabulary
    part.group, part.first = group, first_row(whole_size, group)


def first_row(size: int, group: ProcessGroup) -> int:
    """The first row of this rank's part of ``size`` rows, as a DTensor is cut."""
    return group.rank() * -(-size // group.size())


def own_places(tokens: torch.Tensor, first: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of tokens in ``size`` rows from ``first`` on, and which tokens are there; the place of others is 0."""
    places = tokens - first
    here = (places >= 0) & (places < size)
    return places.where(here, 0), here


def share_norm(module: nn.Module, mesh: DeviceMesh) -> None:
    """Have all ranks use a norm, each for its own tokens or heads: its gradient is the sum of theirs."""
    _distribute(module, mesh, weight=Replicate())
    kind: Any = type(module)
    module.__class__ = _whole(kind)


def read_whole(block: nn.Module, group: ProcessGroup, *, tokens_split: bool) -> None:
    """Have all columns of attention or an MLP read hidden states that are whole, or gathered from all ranks.

    Each rank has an equal share of all samples' tokens in one row, so that an exchange needs no reordering. Only
    attention needs the ends of sequences.
    """
    whole_states = gathered if tokens_split else copied

    def read(_module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if given:
            return (whole_states(given[0], group), *given[1:]), named
        hidden = whole_states(named["hidden_states"], group)
        if tokens_split and "position_embeddings" in named:
            sequence_tokens = named["position_embeddings"][0].shape[-2]
            hidden = hidden.view(-1, sequence_tokens, hidden.shape[-1])
        return given, named | {"hidden_states": hidden}

    block.register_forward_pre_hook(read, with_kwargs=True)


def columns(module: nn.Linear, given: torch.Tensor) -> torch.Tensor:
    """This rank's columns of a layer's output; backward gives this rank's part of the input's gradient."""
    return linear(given, _own(module.weight), None if module.bias is None else _own(module.bias))


@contextmanager
def without_sums(model: nn.Module) -> Iterator[None]:
    """Layers give each rank's part where they would give the sum over all ranks."""
    rows = [module for module in model.modules() if isinstance(module, _Rows)]
    groups = [module.group for module in rows]
    for module in rows:
        module.group = None
    try:
        yield
    finally:
        for module, group in zip(rows, groups, strict=True):
            module.group = group


def sum_gradients(model: nn.Module, group: ProcessGroup) -> None:
    """Sum the partial gradients of :func:`share_norm` over the ranks, in one message."""
    partial: list[Any] = [
        each
        for each in model.parameters()
        if isinstance(each.grad, DTensor) and any(placement.is_partial() for placement in each.grad.placements)
    ]
    if not partial:
        return
    parts = [each.grad.to_local() for each in partial]
    total = torch.cat([part.flatten() for part in parts])
    distributed.all_reduce(total, group=group)
    for each, gradient in zip(partial, torch.split(total, [part.numel() for part in parts]), strict=True):
        each.grad = DTensor.from_local(gradient.view_as(each), each.device_mesh, each.placements, run_check=False)


def like(weight: torch.Tensor, layout: torch.Tensor) -> torch.Tensor:
    """``weight``, cut the way ``layout`` is where that is a DTensor. Every rank holds the whole weight already."""
    if not isinstance(layout, DTensor):
        return weight
    return distribute_tensor(weight, layout.device_mesh, layout.placements, src_data_rank=None)


def _distribute(module: nn.Module, mesh: DeviceMesh, **placements: Placement) -> None:
    for name, placement in placements.items():
        whole = getattr(module, name, None)
        if whole is not None:
            split = distribute_tensor(whole, mesh, [placement], src_data_rank=None)
            module.register_parameter(name, nn.Parameter(split, requires_grad=whole.requires_grad))


def _own(parameter: Any, gradient: Sequence[Placement] | None = None) -> torch.Tensor:
    """This rank's part; its gradient is placed as the parameter is, or as ``gradient``."""
    local: torch.Tensor = parameter.to_local(grad_placements=gradient)
    return local


class _Columns(nn.Linear):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return columns(self, given)


class _Rows(nn.Linear):
    group: ProcessGroup | None
    tokens_split: bool

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        output = linear(given, _own(self.weight))
        if self.group is None:
            pass
        elif self.tokens_split:
            output = scattered(output.reshape(1, -1, output.shape[-1]), self.group)
        else:
            output = summed(output, self.group)
        return output if self.bias is None else output + _own(self.bias, _SUMMED_LATER if self.tokens_split else None)


class _Vocabulary(nn.Embedding):
    """A gradient of the whole vocabulary's size, as DTensor makes one on each rank, is never there."""

    group: ProcessGroup
    first: int

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weight = _own(self.weight)
        places, here = own_places(tokens.reshape(1, -1), self.first, weight.shape[0])
        padding = None if self.padding_idx is None else self.padding_idx - self.first
        ignored = padding if padding in range(weight.shape[0]) else None
        return scattered(embedding(places, weight, ignored) * here[..., None], self.group)


class _WithOwnWeight:
    """A norm to its own code, with this rank's weight."""

    def __init__(self, norm: Any) -> None:
        self._norm_module = norm
        self.weight = _own(norm.weight, _SUMMED_LATER)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._norm_module, name)


@cache
def _whole(kind: Any) -> type[nn.Module]:
    """A norm's class; one for each kind, as one compiled layer serves all whose classes are the same."""

    def forward(self: nn.Module, given: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = kind.forward(_WithOwnWeight(self), given)
        return normed

    return type(kind.__name__, (kind,), {"forward": forward})


# Exchanges of ranks that split layers: forward, and of the gradient in backward (arXiv:2205.05198, 4.2).
#
# Activations are of shape (samples, tokens, hidden units). Where they are split, it is along the tokens.

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
        part: torch.Tensor = functional.reduce_scatter_tensor(tensor.contiguous(), "sum", 1, group)
    else:
        samples, tokens, hidden = tensor.shape
        part = tensor.new_empty((samples, tokens // group.size(), hidden))
        parts = tensor.reshape(samples, group.size(), *part.shape[1:]).transpose(0, 1).flatten(0, 1)
        reduce_scatter(part, parts.contiguous(), group=group)
    return part


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: ProcessGroup, forward: Exchange, backward: Exchange) -> Any:
        ctx.group, ctx.exchange = group, backward
        return forward(tensor, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.exchange(gradient, ctx.group), None, None, None


def _exchange(forward: Exchange, backward: Exchange) -> Exchange:
    def exchanged(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
        result: torch.Tensor = _Exchange.apply(tensor, group, forward, backward)  # type: ignore[no-untyped-call]
        return result

    return exchanged


copied = _exchange(_same, _sum)
"""The same tensor for all ranks, which each use it: its gradient is the sum of theirs."""
summed = _exchange(_sum, _same)
"""The sum of all ranks' tensors."""
gathered = _exchange(_gather, _scatter)
"""All ranks' tokens."""
scattered = _exchange(_scatter, _gather)
"""This rank's tokens of the sum of all ranks' tensors."""
