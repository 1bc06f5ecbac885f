"""Attention with a sliding window, block by block: a block's queries see its own keys and those of the block before.

A mask over whole sequences makes a kernel compute all products and throw most away.
"""

from __future__ import annotations

import torch

# From so many windows in a sequence on, the products saved are worth the copies.
_LEAST_WINDOWS = 4


def divides(tokens: int, window: int | None) -> bool:
    """Whether sequences of ``tokens`` are cut into blocks as long as the window."""
    return window is not None and tokens % window == 0 and tokens >= _LEAST_WINDOWS * window


def blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Parts of shape (batch, heads, tokens, width) as (batch · blocks, …), and the mask of all blocks."""
    batch, count = query.shape[0], query.shape[2] // window
    return (
        _stacked(_cut(query, window)),
        _stacked(_with_previous(_cut(key, window))),
        _stacked(_with_previous(_cut(value, window))),
        _mask(count, window, query.device).repeat(batch, 1, 1, 1),
    )


def joined(output: torch.Tensor, batch: int) -> torch.Tensor:
    """Attention's output of the blocks, (batch · blocks, window, heads, width), as (batch, tokens, heads, width)."""
    return output.reshape(batch, -1, *output.shape[2:])


def _cut(part: torch.Tensor, window: int) -> torch.Tensor:
    return part.reshape(*part.shape[:2], -1, window, part.shape[-1])


def _with_previous(part: torch.Tensor) -> torch.Tensor:
    before = torch.cat([torch.zeros_like(part[:, :, :1]), part[:, :, :-1]], dim=2)
    return torch.cat([before, part], dim=3)


def _stacked(part: torch.Tensor) -> torch.Tensor:
    return part.transpose(1, 2).flatten(0, 1)


def _mask(count: int, window: int, device: torch.device) -> torch.Tensor:
    """(blocks, 1, window, 2 · window): the first block has none before it."""
    query = torch.arange(window, device=device)[:, None] + window
    key = torch.arange(2 * window, device=device)[None, :]
    near = ((key <= query) & (key > query - window)).expand(count, 1, window, 2 * window).clone()
    near[0, ..., :window] = False
    return near
