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
from pybench.worker.backends.common_torch.answers import GenerationEvaluation
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.common_torch.tokens import sample_tokens
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.generate import Generation
from pybench.worker.backends.torch.train.update import IGNORED, summed_loss


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
        masks = sequence_masks(model.config, settings.longest_sequence_tokens, ranks.device)
        yield GenerationEvaluation(settings, generation, model, {"attention_mask": masks})
    finally:
        generation.close()
