"""Next-token cross-entropy."""

from __future__ import annotations

import torch
from torch.nn import functional

IGNORED = -100


def summed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over all labels, in nats and float32; the sum, since ranks and passes may see different numbers of them."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
