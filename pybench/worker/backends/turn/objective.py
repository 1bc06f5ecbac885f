"""What training on a turn's sequences minimises: the loss of their answers alone."""

from __future__ import annotations

import torch
from torch.nn import functional

from pybench.worker.backends.torch.train.learner import Batch
from pybench.worker.backends.torch.train.loss import IGNORED


def policy_loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Policy gradient with advantages relative to the group (GRPO, arXiv:2402.03300), on policy and without a critic.

    Summed over the answers' tokens. One update follows each generation, so the old policy is the present one: the
    ratio is 1, and its gradient that of the log-probabilities. Rewards are fixed by a sequence's place in its group:
    what a step costs does not depend on them.
    """
    assert batch.advantages is not None
    shape = batch.labels.shape
    negative = functional.cross_entropy(
        logits.flatten(0, 1).float(), batch.labels.flatten(), ignore_index=IGNORED, reduction="none"
    )
    log_probability = -negative.view(shape)
    ratio = torch.exp(log_probability - log_probability.detach())
    weighted = ratio * batch.advantages[:, None] * (batch.labels != IGNORED)
    return -weighted.sum()


def advantages(num_sequences: int, group_size: int) -> torch.Tensor:
    """(reward - mean) / standard deviation within each group; an answer's reward is its place in the group."""
    rewards = torch.arange(group_size, dtype=torch.float32)
    own = (rewards - rewards.mean()) / rewards.std(correction=0)
    return own.repeat(num_sequences // group_size)


def log_probabilities(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of each position's label, from its logits, of shape (tokens, vocabulary): in nats, float32, 0 without a label."""
    return -functional.cross_entropy(logits.float(), labels.to(logits.device), ignore_index=IGNORED, reduction="none")
