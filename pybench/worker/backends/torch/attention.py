"""Attention under our own name: scaled_dot_product_attention without masks or copies it does not need."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

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
        output, _ = sdpa_attention_forward(module, query, key, value, mask, **kw)
        return output, None
    batch, num_heads, _, width = query.shape
    grouped = query.reshape(batch, key.shape[1], num_heads // key.shape[1], width)
    output = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=kw.get("scaling"))
    return output.reshape(batch, 1, num_heads, value.shape[-1]), None


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
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return int(config.sliding_window) if sliding else None


def _by_type(config: Any, full: torch.Tensor | None, sliding: torch.Tensor | None) -> Masks:
    if _window(config) is None:
        return full
    return {"full_attention": full, "sliding_attention": sliding}
