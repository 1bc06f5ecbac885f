"""Attention under our own name: scaled_dot_product_attention without masks or copies it does not need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.integrations.sdpa_attention import sdpa_attention_forward

# The library has no mask function for this name, so it passes our masks through.
NAME = "pybench"

Masks = torch.Tensor | dict[str, torch.Tensor | None] | None
"""One mask for all layers, or one for each layer type."""


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    s_aux: torch.Tensor | None = None,
    **kw: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention without a mask; decode of grouped heads without repeating keys and values.

    Queries, keys and values are of shape (batch, heads, tokens, width), outputs of shape (batch, tokens, heads, width).
    With one query token the heads of a group see the same keys, so they stand in for query positions. The library's
    path would write every key and value once for each head of its group first.
    """
    batch, num_heads, tokens, width = query.shape
    output: torch.Tensor
    if tokens == 1 and mask is not None:
        grouped = query.reshape(batch, key.shape[1], num_heads // key.shape[1], width)
        if s_aux is not None:
            # Keys and values of the cache are read where they are.
            scores = ((grouped @ key.mT) * kw["scaling"]).masked_fill(~mask, float("-inf"))
            sinks = s_aux.to(scores.dtype).reshape(1, *grouped.shape[1:3], 1).expand(*scores.shape[:-1], 1)
            weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1, dtype=torch.float32)
            output = weights[..., :-1].to(value.dtype) @ value
        else:
            scale = kw.get("scaling")
            output = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
        return output.reshape(batch, 1, num_heads, value.shape[-1]), None
    if mask is not None:  # prefill from position 0: the rest of the cache is still empty
        key, value = key[:, :, : mask.shape[-1]], value[:, :, : mask.shape[-1]]
    window = kw.get("sliding_window")
    # Sequences are cut into blocks as long as the window where that divides them.
    divides = window is not None and tokens % window == 0 and tokens >= _LEAST_WINDOWS * window
    in_blocks = mask is not None and tokens == key.shape[2] and divides
    if in_blocks:
        query, key, value, mask = blocks(query, key, value, int(window or 0))
    length = query.shape[2]
    if s_aux is not None:
        query, key, value, mask = with_sinks(query, key, value, mask, s_aux / kw["scaling"])
    output = sdpa_attention_forward(module, query, key, value, mask, **kw)[0]
    if s_aux is not None:
        output = output[:, -length:, :, :-_ROOM]  # without the sinks' place, at the width of the values
    # Blocks of shape (batch · blocks, window, heads, width) become sequences again.
    return output.reshape(batch, -1, *output.shape[2:]) if in_blocks else output, None


def sequence_masks(config: Any, length: int, device: torch.device) -> Masks:
    """Masks for whole sequences from position 0; causal attention needs none, a sliding window its own."""

    def near(window: int) -> torch.Tensor | None:
        positions = torch.arange(length, device=device)
        return None if length <= window else _near(positions[:, None], positions[None, :], window)

    return _by_type(config, None, near)


def chunk_masks(config: Any, queries: torch.Tensor, keys: torch.Tensor) -> Masks:
    """Masks for the tokens at positions ``queries`` over those at ``keys``."""
    query, key = queries[:, None], keys[None, :]
    return _by_type(config, (key <= query)[None, None], lambda window: _near(query, key, window))


def decode_masks(config: Any, position: torch.Tensor, length: int) -> Masks:
    """Masks for one token at ``position`` (a tensor of one element) over a cache of ``length``."""
    return chunk_masks(config, position, torch.arange(length, device=position.device))


def _near(query: torch.Tensor, key: torch.Tensor, window: int) -> torch.Tensor:
    return ((key <= query) & (key > query - window))[None, None]


def _by_type(config: Any, full: torch.Tensor | None, near: Callable[[int], torch.Tensor | None]) -> Masks:
    """Layers that slide have the mask ``near`` of their window; a family without types of layers has it in all."""
    types, window = getattr(config, "layer_types", None), getattr(config, "sliding_window", None)
    if window is None or (types is not None and "sliding_attention" not in types):
        return full
    sliding = near(int(window))
    return sliding if types is None else {"full_attention": full, "sliding_attention": sliding}


# Attention sinks (arXiv:2309.17453): a trained number for each head that takes a share of every softmax.
#
# A sink has no value: what attention gives to it is lost. No kernel knows of sinks. They become a first key, and one
# more number in each query, so that the product of the two is the sink.


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


# Attention with a sliding window, block by block: a block's queries attend to the keys of two blocks, this one and the
# previous one.
#
# A mask over whole sequences makes a kernel compute all products and throw most away.


# Fewest windows of a sequence at which the products saved are worth the copies.
_LEAST_WINDOWS = 4


def blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Parts of shape (batch, heads, tokens, width) as (batch · blocks, …), and the mask of all blocks."""
    batch, count, device = query.shape[0], query.shape[2] // window, query.device
    query, key, value = [part.reshape(*part.shape[:2], -1, window, part.shape[-1]) for part in (query, key, value)]
    at_query = torch.arange(window, device=device)[:, None] + window
    near = _near(at_query, torch.arange(2 * window, device=device)[None, :], window)
    mask = near.expand(count, 1, window, 2 * window).clone()
    mask[0, ..., :window] = False  # the first block has none before it
    stacked = [part.transpose(1, 2).flatten(0, 1) for part in (query, _with_previous(key), _with_previous(value))]
    return stacked[0], stacked[1], stacked[2], mask.repeat(batch, 1, 1, 1)


def _with_previous(part: torch.Tensor) -> torch.Tensor:
    before = torch.cat([torch.zeros_like(part[:, :, :1]), part[:, :, :-1]], dim=2)
    return torch.cat([before, part], dim=3)
