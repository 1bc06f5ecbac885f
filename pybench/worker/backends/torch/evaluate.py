"""Evaluation of a model while it trains: one forward pass for the loss, or decoding the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn

from pybench.model.wire import Metric, Work
from pybench.model.workloads.evaluate import Evaluate
from pybench.worker.backend import StepOutcome, Workload
from pybench.worker.backends.common_torch.answers import answer_loss
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.common_torch.tokens import sample_tokens
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.generate import Generation
from pybench.worker.backends.torch.train.loss import IGNORED, summed_loss


class LossEvaluation:
    """One forward pass over prompt and answer; the loss counts the answer's tokens alone."""

    def __init__(self, settings: Evaluate, model: Any, ranks: TorchRanks) -> None:
        self._settings = settings
        self._model = model
        self._ranks = ranks
        self._local = settings.batch_size // settings.data_parallel
        self._masks = sequence_masks(model.config, settings.longest_sequence_tokens, ranks.device)

    @torch.inference_mode()
    def step(self, index: int) -> StepOutcome:
        """Evaluate this rank's samples of step ``index``; the loss is the mean over all ranks."""
        settings = self._settings
        first = index * settings.batch_size + self._ranks.rank * self._local
        length, vocab_size = settings.longest_sequence_tokens, self._model.config.vocab_size
        tokens = sample_tokens(first, self._local, length, vocab_size, settings.seed).to(self._ranks.device)
        labels = nn.functional.pad(tokens[:, 1:], (0, 1), value=IGNORED)
        labels[:, : settings.prompt_tokens - 1] = IGNORED
        logits = self._model(input_ids=tokens, attention_mask=self._masks, use_cache=False).logits
        total = summed_loss(logits, labels)
        if self._ranks.world_size > 1:
            distributed.all_reduce(total)
        loss = total.item() / (settings.batch_size * settings.output_tokens)
        return StepOutcome(work=Work(samples=settings.batch_size), loss=loss)

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory."""
        return memory_metrics(self._ranks.device)


class GenerationEvaluation:
    """Greedy decoding of every answer, as generation does it."""

    def __init__(self, settings: Evaluate, generation: Generation, model: Any, device: torch.device) -> None:
        self._settings = settings
        self._generation = generation
        self._model = model
        self._masks = sequence_masks(model.config, settings.longest_sequence_tokens, device)
        self._step = 0

    def step(self, index: int) -> StepOutcome:
        """Decode this rank's answers of step ``index``."""
        self._generation.step(index)
        self._step = index
        return StepOutcome(work=Work(samples=self._settings.batch_size))

    def metrics(self) -> tuple[Metric, ...]:
        """Those of generation, and how unlikely the model finds the last answers."""
        tokens = torch.cat([self._generation.prompts(self._step), self._generation.output], dim=1)
        vocab_size = self._model.config.vocab_size
        return (*self._generation.metrics(), answer_loss(self._settings, tokens, vocab_size, self._logits))

    def _logits(self, tokens: torch.Tensor) -> torch.Tensor:
        kept = self._settings.output_tokens + 1
        inputs = {"input_ids": tokens, "attention_mask": self._masks}
        logits: torch.Tensor = self._model(**inputs, use_cache=False, logits_to_keep=kept).logits
        return logits


@contextmanager
def evaluation(settings: Evaluate, architecture: dict[str, Any], ranks: TorchRanks) -> Iterator[Workload]:
    """Build the model on every rank; on a GPU decoding runs from a CUDA graph."""
    model = build_model(architecture, getattr(torch, settings.dtype), ranks.device, settings.seed).eval()
    if settings.method == "loss":
        yield LossEvaluation(settings, model, ranks)
        return
    generation = Generation(settings.decoding, model, model.config, ranks.device, ranks.rank)
    if ranks.device.type == "cuda":
        generation.capture()
    try:
        yield GenerationEvaluation(settings, generation, model, ranks.device)
    finally:
        generation.close()
