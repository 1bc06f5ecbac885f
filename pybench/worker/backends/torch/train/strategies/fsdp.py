"""Weights, gradients and optimizer states split over the replicas (FSDP2), and over tensor-parallel ranks, if any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard

from pybench.worker.backends.torch.train.learner import HOSTS, SHARDS, Learner, Portion, Task, WholeModel, device_mesh
from pybench.worker.backends.torch.train.model import compile_layers, layers_of, trainable_model
from pybench.worker.backends.torch.train.strategies.context_parallel import attend_over
from pybench.worker.backends.torch.train.strategies.tensor_parallel import split_layers


def learner(task: Task) -> Learner:
    """Every layer is gathered before its use and let go after it."""
    settings = task.settings
    mesh = device_mesh(task)
    model, weights = trainable_model(task)
    if settings.tensor_parallel > 1:
        split_layers(task, model, mesh["tensor_parallel"])
    if settings.context_parallel > 1:
        attend_over(mesh["context_parallel"], model)
    compile_layers(task, model)
    # All replicas, and all chunks of their sequences, share the weights. FSDP takes the first of two dimensions for
    # replicas, which average the gradients of each shard.
    if settings.hybrid_shard:
        shards = mesh[HOSTS, SHARDS]
        replica = mesh.get_local_rank(HOSTS) * settings.num_shards + mesh.get_local_rank(SHARDS)
    else:
        shards, replica = mesh["data_parallel"], mesh.get_local_rank("data_parallel")
    if settings.context_parallel > 1:
        shards = mesh["data_parallel", "context_parallel"]._flatten("shards")  # noqa: SLF001 - has no other name
    options: dict[str, Any] = {"mesh": shards}
    if settings.reshard_after_forward is not None:
        options["reshard_after_forward"] = settings.reshard_after_forward
    if settings.mixed_precision is not None:
        computing = getattr(torch, settings.mixed_precision)
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=computing, reduce_dtype=torch.float32)
    if settings.cpu_offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=task.ranks.device.type == "cuda")
    # Layer by layer: no rank ever holds more than its own part and one whole layer.
    for name, layer in layers_of(model).items():
        weights.fill_parameters(name)
        fully_shard(layer, **options)
    weights.fill()
    fully_shard(model, **options)
    chunk = mesh.get_local_rank("context_parallel")
    return WholeModel(
        task,
        model,
        portion=Portion(replica=replica, chunk=chunk, num_chunks=settings.context_parallel),
        averaged_over=settings.data_parallel * settings.context_parallel,
        same_loss_on=settings.tensor_parallel,
        quiet=lambda: _gradients_held_back(model),
        silent=lambda: everything_gathered(model),
    )


@contextmanager
def _gradients_held_back(model: FSDPModule) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


@contextmanager
def everything_gathered(model: Any) -> Iterator[None]:
    """Gather all weights once and keep them: what steps do from then on is computing alone."""
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.set_reshard_after_backward(False, recurse=False)
        part.unshard()
    with _gradients_held_back(model):
        yield
