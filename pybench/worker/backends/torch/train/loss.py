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
HeadLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of the last layer's hidden states, of shape (tokens, hidden units), and labels of shape (tokens,): their sum."""
Read = Callable[[torch.Tensor], torch.Tensor]


def summed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over all labels, in nats and float32; the sum, since ranks and passes may see different numbers of them."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def loss_of(settings: Train) -> Loss:
    """:func:`summed_loss`; with ``compile`` in fused kernels."""
    return torch.compile(summed_loss) if settings.compile else summed_loss


def return_loss(model: Any, loss: HeadLoss, chunk_tokens: int | None, read: Read | None = None) -> None:
    """Have ``model``, called with labels, return its summed ``loss``, of what ``read`` makes of its hidden states.

    ``chunk_tokens`` is the number of tokens whose logits exist at a time. Logits of a long batch need more memory than
    all activations: 12 bytes each, with their gradient. The head runs a second time in backward, as every recomputed
    layer does.
    """
    with_logits = model.forward

    def forward(*, labels: torch.Tensor | None = None, **inputs: Any) -> Any:
        if labels is None:
            return with_logits(**inputs)
        hidden = model.model(**inputs).last_hidden_state
        given = (hidden if read is None else read(hidden)).flatten(0, 1), labels.flatten()
        if chunk_tokens is None:
            return loss(*given)
        parts = zip(*(torch.split(each, chunk_tokens) for each in given), strict=True)
        return torch.stack([checkpoint(loss, *part, use_reentrant=False) for part in parts]).sum()

    model.forward = forward


def whole_head_loss(model: Any, settings: Train) -> HeadLoss:
    """Of a head that this rank has whole."""
    loss = loss_of(settings)
    return lambda hidden, labels: loss(model.lm_head(hidden)[None], labels[None])
