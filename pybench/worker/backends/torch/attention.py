"""Attention under our own name: scaled_dot_product_attention without masks or copies it does not need."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pybench.worker.backends.torch.sinks import decode_with_sinks, with_sinks, without_room
from pybench.worker.backends.torch.window_blocks import blocks, divides, joined

# A name the library has no mask function for: it then passes our masks, or none, through as they are.
NAME = "pybench"

Masks = torch.Tensor | dict[str, torch.Tensor | None] | None
"""One mask for all layers, or one for each layer type."""


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    **kw: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention without a mask; decode of grouped heads without repeating keys and values.

    With one query token the heads of a group see the same keys, so they stand in for query positions. The library's
    path would write every key and value once for each head of its group first.
    """
    if query.shape[2] > 1 or mask is None:
        if mask is not None:  # prefill from position 0: the rest of the cache is still empty
            key, value = key[:, :, : mask.shape[-1]], value[:, :, : mask.shape[-1]]
        return _attend_to_sequences(module, query, key, value, mask, **kw), None
    batch, num_heads, _, width = query.shape
    grouped = query.reshape(batch, key.shape[1], num_heads // key.shape[1], width)
    if kw.get("s_aux") is not None:
        output = decode_with_sinks(grouped, key, value, mask, kw["s_aux"], kw["scaling"])
    else:
        output = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=kw.get("scaling"))
    return output.reshape(batch, 1, num_heads, value.shape[-1]), None


def _attend_to_sequences(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    s_aux: torch.Tensor | None = None,
    **kw: Any,
) -> torch.Tensor:
    """Queries, keys and values of shape (batch, heads, tokens, width) to (batch, tokens, heads, width)."""
    batch, _, tokens, _ = query.shape
    window = kw.get("sliding_window")
    in_blocks = mask is not None and tokens == key.shape[2] and divides(tokens, window)
    if in_blocks:
        query, key, value, mask = blocks(query, key, value, int(window or 0))
    length = query.shape[2]
    if s_aux is not None:
        query, key, value, mask = with_sinks(query, key, value, mask, s_aux / kw["scaling"])
    output, _ = sdpa_attention_forward(module, query, key, value, mask, **kw)
    if s_aux is not None:
        output = without_room(output, length)
    return joined(output, batch) if in_blocks else output


def register() -> None:
    """Make :func:`attend` known to the library."""
    AttentionInterface.register(NAME, attend)


def sequence_masks(config: Any, length: int, device: torch.device) -> Masks:
    """Masks for whole sequences from position 0; causal attention needs none, a sliding window its own."""
    window = _window(config)
    if window is None or length <= window:
        return _by_type(config, None, None)
    positions = torch.arange(length, device=device)
    return _by_type(config, None, _near(positions[:, None], positions[None, :], window)[None, None])


def chunk_masks(config: Any, queries: torch.Tensor, keys: torch.Tensor) -> Masks:
    """Masks for the tokens at positions ``queries`` over those at ``keys``."""
    query, key = queries[:, None], keys[None, :]
    window = _window(config)
    near = None if window is None else _near(query, key, window)[None, None]
    return _by_type(config, (key <= query)[None, None], near)


def decode_masks(config: Any, position: torch.Tensor, length: int) -> Masks:
    """Masks for one token at ``position`` (a tensor of one element) over a cache of ``length``."""
    keys = torch.arange(length, device=position.device)
    seen = (keys <= position)[None, None, None]
    window = _window(config)
    return _by_type(config, seen, None if window is None else _near(position, keys, window)[None, None, None])


def _near(query: torch.Tensor, key: torch.Tensor, window: int) -> torch.Tensor:
    return (key <= query) & (key > query - window)


def _window(config: Any) -> int | None:
    """Of the layers that have one; a family without types of layers has it in all or none."""
    types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    return None if window is None or (types is not None and "sliding_attention" not in types) else int(window)


def _by_type(config: Any, full: torch.Tensor | None, sliding: torch.Tensor | None) -> Masks:
    if _window(config) is None:
        return full
    if getattr(config, "layer_types", None) is None:
        return sliding
    return {"full_attention": full, "sliding_attention": sliding}
