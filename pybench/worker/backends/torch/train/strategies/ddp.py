"""Every rank a whole replica; gradients are averaged in buckets while backward runs (DistributedDataParallel)."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import Any

from torch import distributed
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel

from pybench.model.wire import Metric
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Learner, Portion, Task, WholeModel
from pybench.worker.backends.torch.train.model import compile_layers, trainable_model

_OPTIONS = ("bucket_cap_mb", "find_unused_parameters", "broadcast_buffers", "gradient_as_bucket_view")
# Torch's watchdog of NCCL has a round every 100 ms.
_WATCHDOG_ROUNDS_S = 0.3


def learner(task: Task) -> Learner:
    """A replica on each rank; a lone rank needs no wrapper."""
    model, weights = trainable_model(task)
    weights.fill()
    compile_layers(task, model)
    return replica_learner(task, model)


def replica_learner(
    task: Task, model: Any, portion: Portion | None = None, kind: type[WholeModel] = WholeModel
) -> WholeModel:
    """The learner of a rank's replica ``model``, whose gradients are averaged over all ranks.

    ``portion`` is where ranks have parts of the same sequences.
    """
    replica = replicated(task, model)
    whole = kind(
        task,
        replica,
        portion=portion or Portion(replica=task.ranks.rank),
        averaged_over=task.ranks.world_size,
        quiet=nullcontext if replica is model else replica.no_sync,
        after_first_exchange=partial(release_first_bucket, task.ranks),
    )
    if task.ranks.world_size > 1 and portion is None:
        num_bytes = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        whole.metrics = lambda: (Metric(name="reduced_bytes", value=num_bytes, unit="bytes"),)
    return whole


def replicated(task: Task, model: Any, group: ProcessGroup | None = None) -> Any:
    """``model`` with its gradients averaged over ``group``, by default all ranks."""
    if task.ranks.world_size == 1:
        return model
    given = {name: getattr(task.settings, name) for name in _OPTIONS}
    options = {name: value for name, value in given.items() if value is not None}
    device = task.ranks.device
    device_ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=device_ids, process_group=group, **options)


def release_first_bucket(ranks: TorchRanks) -> None:
    """Wait until torch has dropped what DDP's first exchange worked on.

    DDP begins with one bucket for all gradients and makes smaller ones in its next pass. torch drops a collective's
    tensors when NCCL's watchdog has found it done and another one begins. Where that comes late, both are there: of
    three trainings of 8B parameters on two H100s one ran out of memory.
    """
    if ranks.world_size > 1 and distributed.get_backend() == "nccl":
        ranks.barrier()
        time.sleep(_WATCHDOG_ROUNDS_S)
        ranks.barrier()
