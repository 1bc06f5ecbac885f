"""The ranks as a grid, one dimension for each kind of parallelism."""

from __future__ import annotations

from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pybench.worker.backends.torch.train.learner import Task

# Outermost first: tensor parallelism talks most, so its ranks are neighbours.
_DIMENSIONS = ("pipeline_parallel", "data_parallel", "context_parallel", "tensor_parallel")


def device_mesh(task: Task) -> DeviceMesh:
    """One mesh over all ranks, its dimensions named as the settings are; collective."""
    if not distributed.is_initialized():
        # A lone rank has no process group, and libraries that shard want one.
        backend = "nccl" if task.ranks.device.type == "cuda" else "gloo"
        store = distributed.HashStore()  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    shape = tuple(getattr(task.settings, name) for name in _DIMENSIONS)
    return init_device_mesh(task.ranks.device.type, shape, mesh_dim_names=_DIMENSIONS)
