"""Training: forward, backward and AdamW on random tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from pybench.model.wire import Metric, Work
from pybench.model.workloads.train import Train
from pybench.worker.backend import StepOutcome
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.memory import memory_metrics
from pybench.worker.backends.torch.process_group import TorchRanks
from pybench.worker.backends.torch.tokens import sample_tokens


def _replicate(model: nn.Module, ranks: TorchRanks) -> nn.Module:
    if ranks.world_size == 1:
        return model
    return DistributedDataParallel(model, device_ids=[ranks.device] if ranks.device.type == "cuda" else None)


# How ranks share the work, by ``Train.strategy``.
STRATEGIES: dict[str, Callable[[nn.Module, TorchRanks], nn.Module]] = {"ddp": _replicate}


class Training:
    """A model, its optimizer and this rank's part of every batch."""

    def __init__(self, settings: Train, model: nn.Module, config: Any, ranks: TorchRanks) -> None:  # noqa: ANN401
        self._settings = settings
        self.model = model
        self._vocab_size: int = config.vocab_size
        self._ranks = ranks
        self._masks = sequence_masks(config, settings.sequence_tokens, ranks.device)
        fused = ranks.device.type == "cuda"
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, fused=fused)

    def step(self, index: int) -> StepOutcome:
        """Train on batch ``index``; the loss is the mean over this rank's samples."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = self.backward(self.batch(index))
        self._optimizer.step()
        num_samples = self._settings.local_batch_size * self._settings.data_parallel
        return StepOutcome(work=Work(samples=num_samples), loss=loss.item())

    def batch(self, index: int) -> torch.Tensor:
        """This rank's samples of batch ``index``; the joint batch is the same for every number of ranks."""
        settings = self._settings
        local = settings.local_batch_size
        first = index * local * settings.data_parallel + self._ranks.rank * local
        tokens = sample_tokens(first, local, settings.sequence_tokens, self._vocab_size, settings.seed)
        return tokens.to(self._ranks.device)

    def backward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Gradients of the next-token loss, averaged over the ranks; returns this rank's loss."""
        logits = self.model(input_ids=tokens, attention_mask=self._masks, use_cache=False).logits
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory."""
        return memory_metrics(self._ranks.device)


@contextmanager
def training(settings: Train, architecture: dict[str, Any], ranks: TorchRanks) -> Iterator[Training]:
    """Build the model on every rank and share the work by the settings' strategy."""
    model = build_model(architecture, getattr(torch, settings.dtype), ranks.device, settings.seed).train()
    shared = STRATEGIES[settings.strategy](model, ranks)
    yield Training(settings, shared, model.config, ranks)
