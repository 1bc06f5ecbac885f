"""Samples by their numbers, and evaluation on them: by a forward pass, or by decoding answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed
from torch.nn import functional

from pybench.model.wire import Metric, Work
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import StepOutcome, Workload, WrongResultError
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.seeds import sample_seed


def sample_tokens(first: int, num_samples: int, length: int, vocab_size: int, seed: int) -> torch.Tensor:
    """Tokens of the samples ``first`` and following, on the CPU, each seeded by its own global index."""
    rows = []
    for index in range(first, first + num_samples):
        generator = torch.Generator().manual_seed(sample_seed(seed, index))
        rows.append(torch.randint(vocab_size, (length,), generator=generator))
    return torch.stack(rows)


def step_prompts(settings: Generate, replica: int, index: int, vocab_size: int) -> torch.Tensor:
    """Prompts of replica ``replica`` in step ``index``, on the CPU; all together are the same for any number."""
    batch_size = settings.batch_size // settings.data_parallel
    first = index * settings.batch_size + replica * batch_size
    return sample_tokens(first, batch_size, settings.prompt_tokens, vocab_size, settings.seed)


IGNORED = -100
"""Label of a token that the loss leaves out, as in torch and transformers."""


@dataclass(frozen=True)
class LossEvaluation:
    """One forward pass over prompt and answer; the loss counts the answer's tokens alone.

    ``mean_loss`` gives it for tokens and labels of shape (samples, tokens), each label at its own token.
    """

    settings: Evaluate
    vocab_size: int
    ranks: TorchRanks
    mean_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    @torch.inference_mode()
    def step(self, index: int) -> StepOutcome:
        """Evaluate this rank's samples of step ``index``; the loss is the mean over all ranks, with equal shares."""
        settings, ranks = self.settings, self.ranks
        local, length = settings.batch_size // settings.data_parallel, settings.longest_sequence_tokens
        first = index * settings.batch_size + ranks.rank * local
        tokens = sample_tokens(first, local, length, self.vocab_size, settings.seed).to(ranks.device)
        labels = tokens.clone()
        labels[:, : settings.prompt_tokens] = IGNORED
        loss = self.mean_loss(tokens, labels)
        if ranks.world_size > 1:
            distributed.all_reduce(loss)
        return StepOutcome(work=Work(samples=settings.batch_size), loss=loss.item() / ranks.world_size)

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory."""
        return memory_metrics(self.ranks.device)


class Decoding(Workload):
    """One replica of ``model``, and its share of every step's sequences.

    ``output`` has the last step's answers, of shape (sequences, tokens).
    """

    output: torch.Tensor

    def __init__(self, settings: Generate, model: Any, device: torch.device, replica: int) -> None:
        self._settings = settings
        self._model = model
        self._device = device
        self._replica = replica
        self._batch_size = settings.batch_size // settings.data_parallel

    def prompts(self, index: int) -> torch.Tensor:
        """Prompts of step ``index``, on the device; the same samples for any number of replicas."""
        return step_prompts(self._settings, self._replica, index, self._model.config.vocab_size).to(self._device)


def next_logits(model: Any, tokens: torch.Tensor, masks: Any, positions: torch.Tensor, cache: Any) -> torch.Tensor:
    """Logits of the token that follows ``tokens``, of shape (sequences, vocabulary); the cache gets theirs."""
    logits: torch.Tensor = model(
        input_ids=tokens,
        attention_mask=masks,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits
    return logits[:, -1]


@dataclass
class GenerationEvaluation:
    """Every answer decoded, as generation does it; a pass over whole answers takes ``inputs`` and their tokens."""

    settings: Evaluate
    generation: Decoding
    model: Any
    inputs: Mapping[str, Any] = field(default_factory=dict)
    last_step: int = 0

    def step(self, index: int) -> StepOutcome:
        """Decode this rank's answers of step ``index``."""
        self.generation.step(index)
        self.last_step = index
        return StepOutcome(work=Work(samples=self.settings.batch_size))

    def metrics(self) -> tuple[Metric, ...]:
        """Metrics of generation, and the model's loss on its last answers."""
        tokens = torch.cat([self.generation.prompts(self.last_step), self.generation.output], dim=1)
        options = {**self.inputs, "use_cache": False, "logits_to_keep": self.settings.output_tokens + 1}
        logits_of: Any = lambda whole: self.model(input_ids=whole, **options).logits  # noqa: E731
        vocab_size = self.model.config.vocab_size
        return (*self.generation.metrics(), answer_loss(self.settings, tokens, vocab_size, logits_of))


@torch.inference_mode()
def answer_loss(
    settings: Evaluate, tokens: torch.Tensor, vocab_size: int, logits_of: Callable[[torch.Tensor], torch.Tensor]
) -> Metric:
    """Mean negative log-probability of the answers' tokens, in nats: a search by more beams may find a lower one.

    ``tokens`` are prompts and answers, of shape (sequences, tokens); ``logits_of`` gives logits (1, tokens kept,
    vocabulary) of a sequence (1, tokens), at least for the answer and for the token before it. One sequence at a
    time, since logits of all may not fit. Raises :class:`WrongResultError` for answers of another length, tokens
    outside the vocabulary, and a loss that is not finite.
    """
    outputs, length = settings.output_tokens, settings.longest_sequence_tokens
    if tokens.shape[1] != length:
        raise WrongResultError(
            f"decoding ended after {tokens.shape[1]} tokens of prompt and answer, not after {length}"
        )
    answers = tokens[:, -outputs:]
    if answers.min() < 0 or answers.max() >= vocab_size:
        raise WrongResultError(f"decoding gave tokens outside of the vocabulary of {vocab_size}")
    losses = [
        functional.cross_entropy(logits_of(whole[None])[0, -outputs - 1 : -1].float(), answer)
        for whole, answer in zip(tokens, answers, strict=True)
    ]
    loss = torch.stack(losses).mean().item()
    if not math.isfinite(loss):
        raise WrongResultError(f"the decoded answers have the loss {loss}: the model computes no finite numbers")
    return Metric(name="answer_loss", value=loss, unit="nats/token")
