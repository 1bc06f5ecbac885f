"""Tensor parallelism after Megatron-LM (arXiv:1909.08053): split columns, then rows, then one sum for each block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

_COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_ROWS = ("o_proj", "down_proj")


@dataclass(frozen=True)
class Shard:
    """Splits every layer over ``mesh``, which has one dimension. The plan refused sizes that it does not divide."""

    mesh: DeviceMesh

    @classmethod
    def over_all_ranks(cls, device: torch.device, size: int, replicas: int = 1) -> Shard:
        """Split each of so many replicas over ``size`` ranks that follow each other; collective over all ranks."""
        mesh = init_device_mesh(device.type, (replicas, size), mesh_dim_names=("data_parallel", "tensor_parallel"))
        return cls(mesh["tensor_parallel"])

    def split(self, model: nn.Module) -> None:
        """Turn the projections' weights into DTensors, each rank holding its part, and add the collectives."""
        plan = {name: style for name, module in model.named_modules() if (style := _style(name, module))}
        parallelize_module(model, self.mesh, plan)


def _style(name: str, module: nn.Module) -> ParallelStyle | None:
    """Of a linear layer. An adapter's halves go with the layer: its second half with columns, its first with rows."""
    if not isinstance(module, nn.Linear):
        return None
    parts = name.split(".")
    layer = next((part for part in parts if part in {*_COLUMNS, *_ROWS, "lm_head"}), None)
    if layer == "lm_head":
        return ColwiseParallel(output_layouts=Replicate())
    if layer is None or ("lora_A" in parts and layer in _COLUMNS) or ("lora_B" in parts and layer in _ROWS):
        return None
    return ColwiseParallel() if layer in _COLUMNS else RowwiseParallel()


def like(weight: torch.Tensor, layout: torch.Tensor) -> torch.Tensor:
    """``weight``, cut the way ``layout`` is where that is a DTensor. Every rank holds the whole weight already."""
    if not isinstance(layout, DTensor):
        return weight
    return distribute_tensor(weight, layout.device_mesh, layout.placements, src_data_rank=None)
