"""Attention sinks (arXiv:2309.17453): a trained number for each head that takes a share of every softmax.

A sink has no value: what attention gives to it is lost. No kernel knows of sinks. They become a first key, and one more
number in each query, so that the product of the two is the sink.
"""

from __future__ import annotations

import torch
from torch.nn import functional

# Flash attention takes widths that 8 divides: of these numbers one is the sink, the others are zeros.
_ROOM = 8


def with_sinks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, sinks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Queries, keys and values of shape (batch, heads, tokens, width) with ``sinks``, already divided by the scale.

    Without a mask, attention is causal: a first query comes before the others, which would miss the last key otherwise.
    """
    batch, heads, tokens, _ = query.shape
    logits = sinks.to(query.dtype).reshape(1, heads, 1, 1).expand(batch, heads, tokens, 1)
    query = torch.cat([query, functional.pad(logits, (0, _ROOM - 1))], dim=-1)
    if mask is None:
        query = functional.pad(query, (0, 0, 1, 0))
    width = key.shape[-1]
    key = functional.pad(key, (0, _ROOM, 1, 0))
    key[:, :, 0, width] = 1
    value = functional.pad(value, (0, _ROOM, 1, 0))
    return query, key, value, None if mask is None else functional.pad(mask, (1, 0), value=True)


def without_room(output: torch.Tensor, tokens: int) -> torch.Tensor:
    """The last ``tokens`` of attention's output of shape (batch, tokens, heads, width), at the width of its values."""
    return output[:, -tokens:, :, :-_ROOM]


def decode_with_sinks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    sinks: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """One token's attention; keys and values of the cache are read where they are. ``query`` is (batch, groups, …)."""
    scores = ((query @ key.mT) * scale).masked_fill(~mask, float("-inf"))
    share = sinks.to(scores.dtype).reshape(1, query.shape[1], query.shape[2], 1).expand(*scores.shape[:-1], 1)
    weights = torch.softmax(torch.cat([scores, share], dim=-1), dim=-1, dtype=torch.float32)
    return weights[..., :-1].to(value.dtype) @ value
