"""How many parameters the optimizer updates."""

from __future__ import annotations

import torch
from torch import distributed, nn

from pybench.model.wire import Metric
from pybench.model.workloads.train_strategies import STRATEGIES
from pybench.worker.backends.torch.train.learner import Learner, Task

# What ZeRO's third stage leaves of a parameter on a rank has no elements; this attribute has their number.
_SPLIT_BY_ZERO = "ds_numel"


def trained_parameters(task: Task, learner: Learner) -> Metric:
    """Of the whole model, however it is split: each counts once. Every rank calls this; those with stages add up."""
    count = sum(_whole(parameter) for parameter in learner.parameters() if parameter.requires_grad)
    if STRATEGIES[task.settings.strategy].has_stages and task.ranks.world_size > 1:
        total = torch.tensor(count, device=task.ranks.device)
        distributed.all_reduce(total)
        count = int(total) // task.settings.data_parallel
    return Metric(name="trained_parameters", value=count, unit="")


def _whole(parameter: nn.Parameter) -> int:
    """Elements over all ranks that share them; a DTensor's own number is that."""
    return int(getattr(parameter, _SPLIT_BY_ZERO, parameter.numel()))
