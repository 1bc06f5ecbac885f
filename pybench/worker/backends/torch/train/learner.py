"""The interface of a training strategy, and the learner whose ranks each call the whole model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from pybench.model.wire import Metric
from pybench.model.workloads.settings import RANK_ORDER
from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.update import clip, loss_of, optimizer_of
from pybench.worker.imports import needs_package, spared_by_collector

if TYPE_CHECKING:
    from pybench.worker.backends.torch.attention import Masks  # imports transformers, before which Unsloth must come

_OTHER_MODULES = {"layer_split": "pipeline_parallel"}


def learner_of(task: Task) -> Learner:
    """Build the learner of the task's strategy, whose module has its name where no other is listed.

    It is imported only now: some need a package that not every image has.
    """
    if task.settings.cpu_offload or task.settings.offload_optimizer:  # the update runs in host memory
        # This rank's share of its host's cores; ranks of GPUs have a thread each otherwise. DeepSpeedCPUAdam runs on
        # torch's OpenMP threads.
        cores = len(os.sched_getaffinity(0)) * task.settings.nodes
        torch.set_num_threads(max(1, cores // task.ranks.world_size))
    with needs_package("backend 'torch'", "torch"), spared_by_collector():
        name = _OTHER_MODULES.get(task.settings.strategy, task.settings.strategy)
        module = import_module(f"{__package__}.strategies.{name}")
    built: Learner = module.learner(task)
    return built


HOSTS, SHARDS = "hosts", "shards"
"""Dimensions of the data-parallel mesh where hosts are replicas."""


def device_mesh(task: Task) -> DeviceMesh:
    """One mesh over all ranks, its dimensions named as the settings are; collective.

    With ``hybrid_shard`` data parallelism has two dimensions: hosts, and the shards inside each host.
    """
    settings = task.settings
    divided = {HOSTS: settings.nodes, SHARDS: settings.num_shards}
    sizes: dict[str, int] = {}
    for name in RANK_ORDER:
        is_divided = name == "data_parallel" and settings.hybrid_shard
        sizes |= divided if is_divided else {name: getattr(settings, name)}
    if not distributed.is_initialized():
        # A lone rank has no process group, and libraries that shard want one.
        backend = "nccl" if task.ranks.device.type == "cuda" else "gloo"
        store = distributed.HashStore()  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    return init_device_mesh(task.ranks.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that may be split."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that may be split, gathered; all its ranks call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@dataclass(frozen=True)
class Task:
    """The model and settings of a training, and its ranks. The batch size is a number."""

    settings: Train
    architecture: dict[str, Any]
    ranks: TorchRanks

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        dtype: torch.dtype = getattr(torch, self.settings.dtype)
        return dtype


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

    model: Any
    portion: Portion
    averaged_over: int

    def backward(self, batch: Batch, scale: float, *, last: bool) -> torch.Tensor:
        """Add the gradients of ``scale`` times the batch's summed loss; ``last`` is true for the step's last pass.

        Returns this rank's share of the summed loss; the shares of all ranks add up to the whole.
        """

    def update(self) -> None:
        """Let the optimizer use the gradients, and clear them."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """This rank's parameters of the model, whole or its parts, trained or frozen."""
        parameters: Iterable[nn.Parameter] = self.model.parameters()
        return parameters

    def values(self) -> dict[str, float]:
        """The strategy's own values of the last step; call it after the device has finished the step."""
        return {}

    def metrics(self) -> tuple[Metric, ...]:
        """The strategy's own metrics after the last step."""
        return ()


Quiet = Callable[[], AbstractContextManager[Any]]
Objective = Callable[[torch.Tensor, Batch], torch.Tensor]
"""The summed loss of a batch's logits."""


@dataclass(eq=False)
class WholeModel(Learner):
    """``quiet`` holds gradients back between passes, ``silent`` stops every exchange; by default as ``quiet`` does.

    ``differentiate`` is the backward pass, and ``objective`` replaces the cross-entropy of every label. ``metrics``
    returns the strategy's own metrics, ``before_update`` runs after backward, and ``after_first_exchange`` runs once.
    With the setting ``loss_chunk_tokens``, and where ranks split the vocabulary, the model takes labels and returns its
    summed loss.

    With ``gradient_as_bucket_view`` a pass without exchange would allocate new gradients: a step with such passes sets
    gradients to zero instead of dropping them. DDP makes its final buckets in the pass after its first exchange. The
    first pass therefore exchanges, while no optimizer states need memory. A second average does not change an average.
    """

    task: Task
    model: Any
    optimizer: Any = None
    portion: Portion = Portion()
    averaged_over: int = 1
    same_loss_on: int = 1
    quiet: Quiet = nullcontext
    silent: Quiet | None = None
    differentiate: Callable[[torch.Tensor], None] = torch.Tensor.backward
    objective: Objective | None = None
    metrics: Callable[[], tuple[Metric, ...]] = tuple
    before_update: Callable[[], None] | None = None
    after_first_exchange: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        settings = self.task.settings
        if self.optimizer is None:
            self.optimizer = optimizer_of(self.model.parameters(), settings)
        self._loss = loss_of(settings)
        self._takes_labels = settings.loss_chunk_tokens is not None or settings.splits_vocabulary
        self._in_buckets = self.averaged_over > 1 and bool(settings.gradient_as_bucket_view)
        self._keeps_gradients = self._in_buckets and settings.accumulates
        self._exchanges = self._keeps_gradients

    def backward(self, batch: Batch, scale: float, *, last: bool) -> torch.Tensor:
        """See :class:`~pybench.worker.backends.torch.train.learner.Learner`."""
        exchanges, self._exchanges = last or self._exchanges, False
        with nullcontext() if exchanges else self.quiet():
            loss = self.loss(batch)
            self.differentiate(loss * scale)
        if exchanges and self.after_first_exchange is not None:
            self.after_first_exchange()
            self.after_first_exchange = None
        return loss.detach() / self.same_loss_on

    def loss(self, batch: Batch) -> torch.Tensor:
        """Summed loss of a forward pass."""
        if self.objective is not None:
            return self.objective(self.logits(batch), batch)
        if self._takes_labels:
            loss: torch.Tensor = self.model(**self._inputs(batch), labels=batch.labels)
            return loss
        return self._loss(self.logits(batch), batch.labels)

    def logits(self, batch: Batch) -> torch.Tensor:
        """Logits of a forward pass over whole sequences: samples, tokens, vocabulary."""
        logits: torch.Tensor = self.model(**self._inputs(batch)).logits
        return logits.view(*batch.tokens.shape, -1)

    def exported(self, name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
        """A whole weight by its name, and in its order, in transformers, of the name that it has in this model."""
        return name, weight

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        masks = {"attention_mask": self._masks, "position_ids": batch.positions}
        return {"input_ids": batch.tokens, **masks, "use_cache": False}

    @cached_property
    def _masks(self) -> Masks:
        """Masks of this rank's chunk of every sequence, over all of it."""
        from pybench.worker.backends.torch.attention import chunk_masks, sequence_masks

        config, portion = getattr(self.model, "module", self.model).config, self.portion
        length, device = self.task.settings.sequence_tokens, self.task.ranks.device
        if portion.num_chunks == 1:
            return sequence_masks(config, length, device)
        positions = torch.arange(length, device=device)
        return chunk_masks(config, positions.chunk(portion.num_chunks)[portion.chunk], positions)

    def update(self) -> None:
        """Clip where there is a limit, step and clear."""
        if self.before_update is not None:
            self.before_update()
        if self.task.settings.max_grad_norm is not None:
            clip(self.model.parameters(), self.task.settings.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not self._keeps_gradients)

    def silence(self) -> AbstractContextManager[None]:
        """Stop every exchange. From here on steps differ by their exchange alone."""
        self._keeps_gradients = self._in_buckets
        return (self.silent or self.quiet)()
