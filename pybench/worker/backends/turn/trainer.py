"""The trainer of a turn: a learner whose weights and optimizer states leave the device while the engine works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from pybench.model.workloads.turn import Turn
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.common_torch.samples import IGNORED
from pybench.worker.backends.torch.train.data import Parts, passes_of, with_labels
from pybench.worker.backends.torch.train.learner import Batch, Task, WholeModel, learner_of, local, whole
from pybench.worker.backends.turn.delivery import Named


class Parked:
    """The storages of ``tensors``, on the device or away from it.

    A storage is shrunk to nothing and later grown again, so that parameters, their views and an optimizer's states stay
    the objects that they are. Host copies are pinned on GPUs, made once, and kept.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        every = (local(tensor).untyped_storage() for tensor in tensors)
        storages = {int(each._cdata): each for each in every}  # noqa: SLF001 - storages have no other identity
        self._storages = [storage for storage in storages.values() if storage.nbytes()]
        self._sizes = [storage.nbytes() for storage in self._storages]
        self._views = [torch.empty(0, dtype=torch.uint8, device=each.device).set_(each) for each in self._storages]
        self._copies: list[torch.Tensor] = []
        self._kept = False

    @property
    def host_bytes(self) -> int:
        """Size of the copies in host memory."""
        return sum(copy.nbytes for copy in self._copies)

    @torch.no_grad()
    def leave(self, *, keep: bool) -> None:
        """Free the device's memory; with ``keep`` what it holds is copied to the host first."""
        if keep:
            self._copies = self._copies or [
                torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda")
                for storage in self._storages
            ]
            for copy, view in zip(self._copies, self._views, strict=True):
                copy.copy_(view, non_blocking=True)
            self._wait()
        self._kept = keep
        for storage in self._storages:
            storage.resize_(0)

    @torch.no_grad()
    def come_back(self) -> None:
        """Allocate memory again, and restore the copy if there is one."""
        for storage, size in zip(self._storages, self._sizes, strict=True):
            storage.resize_(size)
        if self._kept:
            for copy, view in zip(self._copies, self._views, strict=True):
                view.copy_(copy, non_blocking=True)
            self._wait()

    def _wait(self) -> None:
        if any(storage.device.type == "cuda" for storage in self._storages):
            torch.cuda.synchronize()


def policy_loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Policy gradient with advantages relative to the group (GRPO, arXiv:2402.03300), on policy and without a critic.

    Summed over the answers' tokens. One update follows each generation, so the old policy is the present one: the
    ratio is 1, and its gradient equals the gradient of the log-probabilities. Rewards are fixed by a sequence's place
    in its group: the cost of a step does not depend on them.
    """
    assert batch.advantages is not None
    log_probability = log_probabilities(logits.flatten(0, 1), batch.labels.flatten()).view(batch.labels.shape)
    ratio = torch.exp(log_probability - log_probability.detach())
    weighted = ratio * batch.advantages[:, None] * (batch.labels != IGNORED)
    return -weighted.sum()


def advantages(num_sequences: int, group_size: int) -> torch.Tensor:
    """(reward - mean) / standard deviation within each group; an answer's reward is its place in the group."""
    rewards = torch.arange(group_size, dtype=torch.float32)
    normalized = (rewards - rewards.mean()) / rewards.std(correction=0)
    return normalized.repeat(num_sequences // group_size)


def log_probabilities(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probability of each label from logits of shape (tokens, vocabulary): nats, float32, 0 without a label."""
    return -functional.cross_entropy(logits.float(), labels.to(logits.device), ignore_index=IGNORED, reduction="none")


class Trainer:
    """Trains on a turn's sequences by one of the training strategies.

    ``model`` is as the strategy left it, without what averages its gradients. ``trainable_names`` are the names in
    transformers of the trained weights, which are handed over: ``handover_bytes`` all together.
    """

    def __init__(self, settings: Turn, architecture: dict[str, Any], ranks: TorchRanks) -> None:
        self._settings = settings
        self._task = Task(settings.training, architecture, ranks)
        learner = learner_of(self._task)
        if not isinstance(learner, WholeModel):
            raise UnsupportedError(f"strategy {settings.strategy} can't take turns with an engine")
        if settings.loss == "grpo":
            learner.objective = policy_loss
        self._learner = learner
        self._parts = Parts(self._task, learner.portion)
        self._states: Parked | None = None
        self._weights: Parked | None = None
        self._device = ranks.device
        wrapped: Any = learner.model
        self.model: nn.Module = wrapped.module if isinstance(wrapped, DistributedDataParallel) else wrapped
        # Listed once: to walk through the model takes longer than to give the engine its weights.
        self._parameters = tuple(self.model.named_parameters())
        trained = [(name, weight) for name, weight in self._parameters if weight.requires_grad]
        self.handover_bytes = sum(weight.numel() * weight.element_size() for _, weight in trained)
        empty = ((name, torch.empty(weight.shape, dtype=weight.dtype, device="meta")) for name, weight in trained)
        self.trainable_names = [learner.exported(name, weight)[0] for name, weight in empty]

    def train(self, sequences: torch.Tensor) -> None:
        """Take one step over all sequences; this rank takes its part."""
        group = self._settings.group_size
        batches = []
        for place in passes_of(self._task.settings, self._learner.portion):
            tokens, labels = with_labels(sequences[place])
            labels[:, : self._settings.prompt_tokens - 1] = IGNORED  # only answers have labels
            batch = self._parts.batch(tokens, labels)
            if group is not None:
                part = advantages(len(sequences), group)[place]
                batch = replace(batch, advantages=part.to(self._device))
            batches.append(batch)
        num_labels = len(sequences) * self._settings.output_tokens
        scale = self._learner.averaged_over / num_labels
        for number, batch in enumerate(batches, 1):
            self._learner.backward(batch, scale, last=number == len(batches))
        self._learner.update()

    def offload_states(self) -> None:
        """Take the optimizer's states to the host; the weights stay, for the engine to copy them."""
        if self._states is None:
            states = self._learner.optimizer.state.values()
            self._states = Parked(
                value for state in states for value in state.values() if torch.is_tensor(value) and value.numel() > 1
            )
        self._leave(self._states)

    def offload_weights(self) -> None:
        """Take the weights to the host."""
        if self._weights is None:  # not before the first step, at which FSDP may give a part other memory
            parameters: list[Any] = list(self.model.parameters())
            # With the scales of the blocks of each weight of four bits.
            states = [getattr(parameter, "quant_state", None) for parameter in parameters]
            self._weights = Parked([*parameters, *(state.absmax for state in states if state is not None)])
        self._leave(self._weights)

    def _leave(self, parked: Parked) -> None:
        """To the host. Freed memory is given back: the engine is another allocator."""
        parked.leave(keep=True)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def load(self) -> None:
        """Bring weights and states back to the device."""
        for parked in (self._weights, self._states):
            if parked is not None:
                parked.come_back()

    def weights(self, *, trainable: bool | None = None) -> Iterator[Named]:
        """Each weight whole, by its name in transformers; gathered when its turn comes, by all ranks together.

        Tied weights come once. ``trainable`` selects the trained weights, or the frozen ones.
        """
        packs = self._task.settings.weights == "nf4"
        if packs:
            from pybench.worker.backends.torch.train.nf4 import unpacked
        for name, parameter in self._parameters:
            if trainable is None or parameter.requires_grad == trainable:
                yield self._learner.exported(name, unpacked(parameter) if packs else whole(parameter.data))

    @torch.no_grad()
    def log_probabilities(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probability of each token after the first, given the previous ones; all ranks take part."""
        batch = self._parts.batch(*with_labels(tokens[None]))
        logits = self._learner.logits(batch)
        if isinstance(self.model, FSDPModule):
            self.model.reshard()  # which only a backward pass would do with the outermost weights
        logprobs = log_probabilities(whole(logits)[0], batch.labels[0])
        if (num_chunks := self._learner.portion.num_chunks) > 1:  # neighbouring ranks have neighbouring chunks
            parts = [torch.empty_like(logprobs) for _ in range(distributed.get_world_size())]
            distributed.all_gather(parts, logprobs.contiguous())
            logprobs = torch.cat(parts[:num_chunks])
        return logprobs[:-1].cpu()
