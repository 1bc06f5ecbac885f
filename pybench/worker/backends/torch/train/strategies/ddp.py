"""Every rank a whole replica; gradients are averaged in buckets while backward runs (DistributedDataParallel)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel

from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.train.learner import Learner, Portion, Task
from pybench.worker.backends.torch.train.model import compile_layers, trainable_model
from pybench.worker.backends.torch.train.optimizer import adamw
from pybench.worker.backends.torch.train.whole_model import WholeModel

_OPTIONS = ("bucket_cap_mb", "find_unused_parameters", "broadcast_buffers", "static_graph", "gradient_as_bucket_view")


def learner(task: Task) -> Learner:
    """A replica on each rank; a lone rank needs no wrapper."""
    model, weights = trainable_model(task)
    weights.fill()
    compile_layers(task, model)
    replica = replicated(task, model)
    alone = replica is model
    return WholeModel(
        replica,
        adamw(model.parameters(), task.settings),
        sequence_masks(model.config, task.settings.sequence_tokens, task.ranks.device),
        portion=Portion(replica=task.ranks.rank),
        averaged_over=task.ranks.world_size,
        chunked=bool(task.settings.loss_chunk_tokens),
        quiet=nullcontext if alone else replica.no_sync,
        silent=None if alone else replica.no_sync,
    )


def replicated(task: Task, model: Any, group: ProcessGroup | None = None) -> Any:
    """``model`` with its gradients averaged over ``group``, by default all ranks."""
    if task.ranks.world_size == 1:
        return model
    given = {name: getattr(task.settings, name) for name in _OPTIONS}
    options = {name: value for name, value in given.items() if value is not None}
    device = task.ranks.device
    device_ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=device_ids, process_group=group, **options)
