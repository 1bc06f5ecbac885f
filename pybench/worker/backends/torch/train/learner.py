"""The interface of a training strategy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pybench.model.wire import Metric
from pybench.model.workloads.settings import RANK_ORDER
from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.update import update_with_all_cores
from pybench.worker.imports import needs_package, spared_by_collector

_STRATEGIES = f"{__package__}.strategies"


def learner_of(task: Task) -> Learner:
    """Build the learner of the task's strategy, whose module has its name.

    It is imported only now: some need a package that not every image has.
    """
    if task.settings.updates_on_host:
        update_with_all_cores(task.ranks, task.settings.nodes)
    with needs_package("backend 'torch'", "torch"), spared_by_collector():
        module = import_module(f"{_STRATEGIES}.{task.settings.strategy}")
    built: Learner = module.learner(task)
    return built


HOSTS, SHARDS = "hosts", "shards"
"""Dimensions of the data-parallel mesh where hosts are replicas."""


def device_mesh(task: Task) -> DeviceMesh:
    """One mesh over all ranks, its dimensions named as the settings are; collective."""
    return _mesh(task, {name: getattr(task.settings, name) for name in RANK_ORDER})


def hybrid_mesh(task: Task) -> DeviceMesh:
    """A mesh with two dimensions for data parallelism: hosts, and the shards inside each host."""
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


@dataclass(frozen=True)
class Task:
    """The model and settings of a training, and its ranks. The batch size is a number."""

    settings: Train
    architecture: dict[str, Any]
    ranks: TorchRanks

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        found: torch.dtype = getattr(torch, self.settings.dtype)
        return found


@dataclass(frozen=True)
class Batch:
    """The input of one pass of this rank, each of shape (samples, tokens); ``positions`` is the same for all samples.

    ``labels`` are the tokens that follow, -100 where none does. ``advantages``, of shape (samples,), are there for a
    policy's loss.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    advantages: torch.Tensor | None = None


@dataclass(frozen=True)
class Portion:
    """This rank's part of the work: replica ``replica`` of ``data_parallel``, chunk ``chunk`` of ``num_chunks``."""

    replica: int = 0
    chunk: int = 0
    num_chunks: int = 1


class Learner(Protocol):
    """A model that a strategy spread over the ranks, with its optimizer.

    ``averaged_over`` is the number that gradients are divided by on their way: backward gets losses times that.
    """

    portion: Portion
    averaged_over: int

    def backward(self, batch: Batch, scale: float, *, last: bool) -> torch.Tensor:
        """Add the gradients of ``scale`` times the batch's summed loss; ``last`` is true for the step's last pass.

        Returns this rank's share of the summed loss; the shares of all ranks add up to the whole.
        """

    def update(self) -> None:
        """Let the optimizer use the gradients, and clear them."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """This rank's parameters of the model, trained or frozen."""

    def values(self) -> dict[str, float]:
        """The strategy's own values of the last step; call it after the device has finished the step."""

    def metrics(self) -> tuple[Metric, ...]:
        """The strategy's own metrics after the last step."""
