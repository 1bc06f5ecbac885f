"""AdamW over whatever parameters a strategy left."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks

# The same for every library: each has its own default.
WEIGHT_DECAY = 0.01


def adamw(parameters: Iterable[nn.Parameter], settings: Train) -> torch.optim.Optimizer:
    """AdamW over the trainable ones, a group for each mesh: one kernel can't mix split and whole weights."""
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            groups.setdefault(_mesh(parameter), []).append(parameter)
    listed = [{"params": group} for group in groups.values()]
    rate, fused = settings.learning_rate, settings.fused_adamw
    return torch.optim.AdamW(listed, lr=rate, weight_decay=WEIGHT_DECAY, fused=fused)


def update_with_all_cores(ranks: TorchRanks) -> None:
    """Give this rank its share of the host's cores, for an update in host memory; ranks of GPUs have a thread each."""
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks.world_size))


def _mesh(parameter: nn.Parameter) -> object:
    return parameter.device_mesh if isinstance(parameter, DTensor) else None
