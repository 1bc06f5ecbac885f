"""Every sequence split over the ranks; attention gathers keys and values (Llama 3, arXiv:2407.21783, 3.3.2).

torch's own ring attention has no kernel for CPUs and is experimental. Here each rank's queries see the gathered keys
under a mask, so that the upper triangle is computed and thrown away: twice the causal attention's operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from transformers import AttentionInterface

from pybench.worker.backends.torch.attention import attend
from pybench.worker.backends.torch.tensor_parallel import gathered
from pybench.worker.backends.torch.train.learner import Learner, Portion, Task, device_mesh
from pybench.worker.backends.torch.train.model import compile_layers, trainable_model
from pybench.worker.backends.torch.train.strategies import ddp

NAME = "pybench_context_parallel"


def learner(task: Task) -> Learner:
    """Every rank the whole model and one chunk of each sequence; gradients are averaged as by DDP.

    A lone rank has whole sequences, which need no mask: under one the speedups' baseline was 8 % slower on an H100.
    """
    if task.settings.context_parallel == 1:
        return ddp.learner(task)
    mesh = device_mesh(task)["context_parallel"]
    model, weights = trainable_model(task)
    attend_over(mesh, model)
    weights.fill()
    compile_layers(task, model)
    portion = Portion(chunk=mesh.get_local_rank(), num_chunks=mesh.size())
    return ddp.replica_learner(task, model, portion)


def attend_over(mesh: DeviceMesh, model: Any) -> None:
    """Have ``model`` attend to the keys and values of every rank of ``mesh``."""
    group = mesh.get_group()

    def gather(part: torch.Tensor) -> torch.Tensor:
        """All ranks' keys or values, in order; backward adds every rank's gradients of this rank's part."""
        samples, heads, _, width = part.shape
        by_token = part.transpose(1, 2).flatten(2)  # as the projection left them, so that nothing is copied
        return gathered(by_token, group).view(samples, -1, heads, width).transpose(1, 2)

    def attend_to_all(module: Any, query: Any, key: Any, value: Any, mask: Any, **kw: Any) -> Any:
        return attend(module, query, gather(key), gather(value), mask, **kw)

    AttentionInterface.register(NAME, attend_to_all)
    model.config._attn_implementation = NAME  # noqa: SLF001 - the library's setter refuses masks of our own
