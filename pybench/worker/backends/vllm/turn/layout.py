"""Where vLLM keeps a weight of transformers: which part of it, in which of its own fused and split parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

_COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_ROWS = ("o_proj", "down_proj")
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_VOCABULARY = ("embed_tokens", "lm_head")
# vllm/model_executor/layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE
_VOCABULARY_PADDING = 64


@dataclass(frozen=True)
class Slice:
    """``whole.narrow(dim, start, length)`` lies at ``offset`` along ``dim`` of ``parameter``.

    ``half`` is "a" or "b" for an adapter's halves, which vLLM stacks at ``place`` in the fused layer ``parameter``.
    """

    parameter: str
    dim: int
    start: int
    length: int
    offset: int
    half: str = ""
    place: int = 0


@dataclass(frozen=True)
class Layout:
    """One of ``num_shards`` tensor-parallel shards of a llama, qwen2 or qwen3 model."""

    architecture: dict[str, Any]
    shard: int
    num_shards: int

    def slice_of(self, name: str, shape: tuple[int, ...]) -> Slice:
        """Place of the weight ``name``, by its name in transformers, with peft's additions where it has adapters."""
        parts = [part for part in name.split(".") if part not in {"base_layer", "default"}]
        half = {"lora_A": "a", "lora_B": "b"}.get(parts[-2], "")
        layer = parts[-3] if half else parts[-2]
        fused, place = _fused(layer)
        owner = parts[: -3 if half else -2]
        parameter = ".".join([*owner, fused] if half else [*owner, fused, parts[-1]])
        dim, splits = self._split(layer, parts[-1], half)
        start, length = self._range(layer, shape[dim], splits=splits)
        offset = 0 if half else self._rows_before(layer)
        return Slice(parameter, dim, start, length, offset, half, place)

    def _split(self, layer: str, kind: str, half: str) -> tuple[int, bool]:
        """The dimension that is split, and whether it is."""
        if layer in _COLUMNS:
            return 0, half != "a"
        if layer in _ROWS:
            return (0, False) if half == "b" or kind == "bias" else (1, True)
        return 0, layer in _VOCABULARY

    def _range(self, layer: str, size: int, *, splits: bool) -> tuple[int, int]:
        if not splits:
            return 0, size
        if layer in _VOCABULARY:
            padded = -(-size // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
            share = padded // self.num_shards
            start = min(self.shard * share, size)
            return start, min(share, size - start)
        share = size // self.num_shards
        return self.shard * share, share

    def _rows_before(self, layer: str) -> int:
        """Rows of this shard that the layers fused in front of it take."""
        own = self.architecture
        width = own.get("head_dim") or own["hidden_size"] // own["num_attention_heads"]
        queries = own["num_attention_heads"] * width // self.num_shards
        keys = own.get("num_key_value_heads", own["num_attention_heads"]) * width // self.num_shards
        before = {"k_proj": queries, "v_proj": queries + keys, "up_proj": own["intermediate_size"] // self.num_shards}
        return int(before.get(layer, 0))


def cut(whole: torch.Tensor, found: Slice) -> torch.Tensor:
    """The part of a whole weight that the shard holds."""
    return whole.narrow(found.dim, found.start, found.length)


def _fused(layer: str) -> tuple[str, int]:
    for fused, layers in _FUSED.items():
        if layer in layers:
            return fused, layers.index(layer)
    return layer, 0
