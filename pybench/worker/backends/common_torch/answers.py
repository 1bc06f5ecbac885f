"""Whether decoded tokens are answers, and how unlikely the model finds them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional

from pybench.model.wire import Metric
from pybench.model.workloads.evaluate import Evaluate
from pybench.worker.backend import WrongResultError

LogitsOf = Callable[[torch.Tensor], torch.Tensor]
"""Of one sequence of shape (1, tokens), by one pass without a cache: (1, tokens kept, vocabulary)."""


@torch.inference_mode()
def answer_loss(settings: Evaluate, tokens: torch.Tensor, vocab_size: int, logits_of: LogitsOf) -> Metric:
    """Mean negative log-probability of the answers' tokens, in nats: a search by more beams may find a lower one.

    ``tokens`` are prompts and answers, of shape (sequences, tokens); ``logits_of`` keeps at least those of the answer
    and of the token before it. One sequence at a time, since logits of all may not fit. Raises
    :class:`WrongResultError` where answers have another length, are no tokens of the model, or have no finite loss.
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
