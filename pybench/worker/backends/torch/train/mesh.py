"""The ranks as a grid, one dimension for each kind of parallelism."""

from __future__ import annotations

from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pybench.model.workloads.settings import RANK_ORDER
from pybench.worker.backends.torch.train.learner import Task

HOSTS, SHARDS = "hosts", "shards"
"""Dimensions of the data-parallel mesh where hosts are replicas."""


def device_mesh(task: Task) -> DeviceMesh:
    """One mesh over all ranks, its dimensions named as the settings are; collective."""
    return _mesh(task, {name: getattr(task.settings, name) for name in RANK_ORDER})


def hybrid_mesh(task: Task) -> DeviceMesh:
    """As :func:`device_mesh`, with two dimensions for data parallelism: hosts, and the shards inside each."""
    settings = task.settings
    sizes: dict[str, int] = {}
    for name in RANK_ORDER:
        divided = {HOSTS: settings.nodes, SHARDS: settings.num_shards}
        sizes |= divided if name == "data_parallel" else {name: getattr(settings, name)}
    return _mesh(task, sizes)


def _mesh(task: Task, sizes: dict[str, int]) -> DeviceMesh:
    if not distributed.is_initialized():
        # A lone rank has no process group, and libraries that shard want one.
        backend = "nccl" if task.ranks.device.type == "cuda" else "gloo"
        store = distributed.HashStore()  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    return init_device_mesh(task.ranks.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
