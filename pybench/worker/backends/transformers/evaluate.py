"""Evaluation as the library's users do it: its own loss, or its own ``generate`` with one beam or several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import distributed

from pybench.model.wire import Metric, Work, WorkOrder
from pybench.model.workloads.evaluate import Evaluate
from pybench.worker.backend import Session, StepOutcome, Workload
from pybench.worker.backends.common_torch.answers import GenerationEvaluation
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.common_torch.tokens import sample_tokens
from pybench.worker.backends.transformers.generate import TransformersGeneration
from pybench.worker.backends.transformers.model import build_model

_IGNORED = -100


class LossEvaluation:
    """One forward pass over prompt and answer; the library's loss counts the answer's tokens alone."""

    def __init__(self, settings: Evaluate, model: Any, ranks: TorchRanks) -> None:
        self._settings = settings
        self._model = model
        self._ranks = ranks

    @torch.inference_mode()
    def step(self, index: int) -> StepOutcome:
        """Evaluate this rank's samples of step ``index``; the loss is the mean over all ranks, which have as many."""
        settings, ranks = self._settings, self._ranks
        local = settings.batch_size // settings.data_parallel
        length, vocab_size = settings.longest_sequence_tokens, self._model.config.vocab_size
        first = index * settings.batch_size + ranks.rank * local
        tokens = sample_tokens(first, local, length, vocab_size, settings.seed).to(ranks.device)
        labels = tokens.clone()
        labels[:, : settings.prompt_tokens] = _IGNORED
        loss = self._model(input_ids=tokens, labels=labels, use_cache=False).loss
        if ranks.world_size > 1:
            distributed.all_reduce(loss)
        return StepOutcome(work=Work(samples=settings.batch_size), loss=loss.item() / ranks.world_size)

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory."""
        return memory_metrics(self._ranks.device)


def evaluations(settings: Evaluate, architecture: dict[str, Any], ranks: TorchRanks) -> Session:
    """Load the model on every rank."""
    model = build_model(architecture, settings.decoding, ranks.device)
    return partial(_evaluation, model=model, ranks=ranks)


@contextmanager
def _evaluation(order: WorkOrder, model: Any, ranks: TorchRanks) -> Iterator[Workload]:
    settings = order.settings
    assert isinstance(settings, Evaluate)
    if settings.method == "loss":
        yield LossEvaluation(settings, model, ranks)
        return
    generation = TransformersGeneration(settings.decoding, model, ranks.device, ranks.rank, settings.beams)
    yield GenerationEvaluation(settings, generation, model)
