"""Next-token cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pybench.model.workloads.train import Train

IGNORED = -100
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of logits of shape (samples, tokens, vocabulary) and labels of shape (samples, tokens)."""


def summed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over all labels, in nats and float32; the sum, since ranks and passes may see different numbers of them."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def loss_of(settings: Train) -> Loss:
    """:func:`summed_loss`; with ``compile`` in fused kernels."""
    return torch.compile(summed_loss) if settings.compile else summed_loss


def lose_by_chunks(model: Any, num_tokens: int, loss: Loss) -> None:
    """Have ``model``, called with labels, return its summed ``loss``; logits exist for ``num_tokens`` tokens at a time.

    Logits of a long batch need more memory than all activations: 12 bytes for each, once their gradient is made. The
    head runs a second time in backward, as every recomputed layer does.
    """

    def chunk(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss(model.lm_head(hidden)[None], labels[None])

    def forward(*, labels: torch.Tensor, **inputs: Any) -> torch.Tensor:
        hidden = model.model(**inputs).last_hidden_state.flatten(0, 1)
        parts = zip(torch.split(hidden, num_tokens), torch.split(labels.flatten(), num_tokens), strict=True)
        return torch.stack([checkpoint(chunk, *part, use_reentrant=False) for part in parts]).sum()

    model.forward = forward
