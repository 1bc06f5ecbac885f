"""Evaluation between training steps: the loss of held-out samples, or their answers decoded greedily."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from pybench.model.wire import Metric
from pybench.model.workloads.train_rules import DEFAULT_OUTPUT_TOKENS
from pybench.worker.backend import WrongResultError
from pybench.worker.backends.common_torch.samples import next_logits, sample_tokens
from pybench.worker.backends.torch.attention import decode_masks, sequence_masks
from pybench.worker.backends.torch.train.data import Parts, with_labels
from pybench.worker.backends.torch.train.learner import Batch, Task, WholeModel

_MOST_TIMES = 3
_ENOUGH_S = 5.0
"""Evaluations that took this long together are not repeated: a scatter of milliseconds is small in comparison."""


class Evaluation:
    """This rank's held-out samples, which no training step has, and one evaluation over them."""

    def __init__(self, task: Task, learner: WholeModel) -> None:
        self._task = task
        self._learner = learner
        settings = task.settings
        size, count = settings.micro_batch_size, settings.evaluation_batches or 1
        first = settings.effective_batch_size + learner.portion.replica * size * count
        parts, length = Parts(task, learner.portion), settings.sequence_tokens
        vocab_size = task.architecture["vocab_size"]
        samples = (sample_tokens(first + n * size, size, length, vocab_size, settings.seed) for n in range(count))
        self._batches = [parts.batch(*with_labels(tokens)) for tokens in samples]

    def metrics(self) -> tuple[Metric, ...]:
        """Length of an evaluation on this rank: the median of up to three, after a batch that warms up.

        Raises :class:`WrongResultError` where a loss, or the score of an answer, is not finite.
        """
        ranks = self._task.ranks
        _require_finite(self.evaluate(self._batches[:1]))
        lengths_s: list[float] = []
        for number in range(_MOST_TIMES):
            if number and ranks.unanimous(sum(lengths_s) >= _ENOUGH_S):
                break
            ranks.barrier()
            start_ns = time.monotonic_ns()
            results = self.evaluate()
            lengths_s.append((time.monotonic_ns() - start_ns) / 1e9)
            _require_finite(results)
        return (Metric(name="evaluation_s", value=statistics.median(lengths_s), unit="s"),)

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch] | None = None) -> list[tuple[torch.Tensor, ...]]:
        """The loss of each of ``batches``, or its answers and their scores, in host memory; of all where none is given.

        They stay on the device for ``evaluation_accumulation_steps`` batches, all of them where that is not given. The
        model trains again afterwards.
        """
        settings, learner = self._task.settings, self._learner
        model = learner.model
        batches = self._batches if batches is None else batches
        outputs = settings.evaluation_output_tokens or DEFAULT_OUTPUT_TOKENS

        def judge(batch: Batch) -> tuple[torch.Tensor, ...]:
            if settings.evaluation_method != "generation":
                return (learner.loss(batch),)
            prompts = batch.tokens[:, : settings.sequence_tokens - outputs]
            return greedy_answers(getattr(model, "module", model), prompts, outputs)

        every = settings.evaluation_accumulation_steps or len(batches)
        model.eval()
        results: list[tuple[torch.Tensor, ...]] = []
        for first in range(0, len(batches), every):
            kept = list(map(judge, batches[first : first + every]))
            results += [tuple(tensor.cpu() for tensor in tensors) for tensors in kept]
            del kept  # before the next ones take memory
        model.train()
        return results


def _require_finite(results: list[tuple[torch.Tensor, ...]]) -> None:
    if not all(bool(torch.isfinite(each).all()) for batch in results for each in batch):
        raise WrongResultError("evaluation found a loss, or the score of an answer, that is no finite number")


def greedy_answers(model: Any, prompts: torch.Tensor, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers of ``outputs`` tokens, and the logarithm of each answer's probability.

    Their shapes are (samples, outputs) and (samples,). No answer ends early: FSDP gathers weights for the same passes
    on every rank.
    """
    length, device = prompts.shape[1], prompts.device
    cache = DynamicCache()
    positions, masks = torch.arange(length, device=device), sequence_masks(model.config, length, device)
    given, answers, scores = prompts, [], torch.zeros(len(prompts), device=device)
    for position in range(length, length + outputs):
        logits = next_logits(model, given, masks, positions[None], cache)
        best, tokens = torch.log_softmax(logits.float(), dim=-1).max(dim=-1)
        answers.append(tokens)
        scores += best
        positions = torch.tensor([position], device=device)
        given, masks = tokens[:, None], decode_masks(model.config, positions, position + 1)
    return torch.stack(answers, dim=1), scores
