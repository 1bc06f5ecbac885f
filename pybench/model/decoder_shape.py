"""The sizes of a decoder that its parameters, operations and bytes are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def forward_flops_per_token(shape: DecoderShape, first: float, last: float | None = None) -> float:
    """Floating-point operations of one token's forward pass; with ``last``, the mean over such contexts, in tokens.

    2 for each active weight outside the embedding, plus attention's scores and values: 4 · heads · head width · context
    in each layer (PaLM, arXiv:2204.02311, appendix B, without its backward factor of 3).
    """
    layer = shape.attention_weights + shape.expert_weights * shape.active_experts
    layers = float(2 * layer * shape.layers)
    return layers + head_flops_per_token(shape) + attention_flops_per_token(shape, first, last)


def attention_flops_per_token(shape: DecoderShape, first: float, last: float | None = None) -> float:
    """FLOPs of attention's scores and values for one token. Contexts as in :func:`forward_flops_per_token`."""
    return 4 * shape.heads * shape.head_width * shape.attended_tokens(first, last)


def backward_flops_per_token(shape: DecoderShape, first: float, last: float | None = None, *, adapters: bool) -> float:
    """FLOPs of one token's backward pass: twice forward. Contexts as in :func:`forward_flops_per_token`.

    Under ``adapters`` (LoRA) the frozen weights get no gradient of their own: theirs is once forward, attention's
    twice. The adapters' own products, about 1 % of the weights', are left out.
    """
    forward = forward_flops_per_token(shape, first, last)
    return forward + (attention_flops_per_token(shape, first, last) if adapters else forward)


def head_flops_per_token(shape: DecoderShape) -> float:
    """FLOPs of one token's forward pass: the projection to the vocabulary."""
    return 2.0 * shape.embedding_weights


def step_flops_per_token(
    shape: DecoderShape,
    first: float,
    last: float,
    *,
    adapters: bool,
    recompute: bool = False,
    loss_in_chunks: bool = False,
) -> tuple[float, float]:
    """FLOPs of one token's training step: of one layer, and of the head.

    The mean over layers, where some have a window, and over contexts as in :func:`forward_flops_per_token`. With
    ``recompute`` layers do forward twice, with ``loss_in_chunks`` the head does. ``adapters`` as in
    :func:`backward_flops_per_token`.
    """
    forward = forward_flops_per_token(shape, first, last)
    backward = backward_flops_per_token(shape, first, last, adapters=adapters)
    head = head_flops_per_token(shape)
    head_backward = head if adapters else 2 * head
    layers = (forward - head) * (1 + recompute) + backward - head_backward
    return layers / shape.layers, head * (1 + loss_in_chunks) + head_backward


Architecture = dict[str, Any]
"""A Hugging Face ``config.json`` as a mapping: what a worker builds the model from."""


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """A decoder with grouped-query attention and a gated MLP, from its Hugging Face config.

    A token passes ``active_experts``. ``sliding_layers`` attend to the last ``window_tokens``, other layers to all.
    """

    model_type: str = ""
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_width: int
    tied_embeddings: bool = False
    num_experts: int = 1
    active_experts: int = 1
    sliding_layers: int = 0
    window_tokens: int | None = None
    max_positions: int | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> DecoderShape:
        """Read a Hugging Face config. Raises ``KeyError`` naming a size that it lacks, ``ValueError`` for no size."""
        experts = int(config.get("num_local_experts") or config.get("num_experts") or 1)
        # Qwen has a window in its config that it may switch off.
        window = None if config.get("use_sliding_window") is False else config.get("sliding_window")
        return cls(
            model_type=str(config.get("model_type", "")),
            vocabulary=_size(config, "vocab_size"),
            hidden=_size(config, "hidden_size"),
            intermediate=_size(config, "intermediate_size"),
            layers=_size(config, "num_hidden_layers"),
            heads=_size(config, "num_attention_heads"),
            key_value_heads=_size(config, "num_key_value_heads"),
            head_width=_size(config, "head_dim")
            if config.get("head_dim")
            else _size(config, "hidden_size") // _size(config, "num_attention_heads"),
            tied_embeddings=bool(config.get("tie_word_embeddings", False)),
            num_experts=experts,
            active_experts=int(config.get("num_experts_per_tok", 1)) if experts > 1 else 1,
            sliding_layers=0 if window is None else _sliding_layers(config),
            window_tokens=window,
            max_positions=config.get("max_position_embeddings"),
        )

    @property
    def embedding_weights(self) -> int:
        """Weights of the embedding, and of the head."""
        return self.vocabulary * self.hidden

    @property
    def end_weights(self) -> int:
        """Weights of embedding and head, which may be one."""
        return self.embedding_weights * (1 if self.tied_embeddings else 2)

    @property
    def attention_weights(self) -> int:
        """Weights of one layer's query, output, key and value projections."""
        return self.hidden * 2 * (self.heads + self.key_value_heads) * self.head_width

    @property
    def expert_weights(self) -> int:
        """Weights of one layer's MLP, or of one expert: gate, up and down projections."""
        return 3 * self.hidden * self.intermediate

    @property
    def layer_weights(self) -> int:
        """Weights of one layer, with all experts of a mixture."""
        return self.attention_weights + self.expert_weights * self.num_experts

    def attended_tokens(self, first: float, last: float | None = None) -> float:
        """Tokens that a token attends to, summed over layers; with ``last``, the mean over positions up to there."""
        whole = _mean_position(first, first if last is None else last, None)
        windowed = _mean_position(first, first if last is None else last, self.window_tokens)
        return (self.layers - self.sliding_layers) * whole + self.sliding_layers * windowed


def _size(config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{key}: found {value!r}, expected a whole number above 0")
    return value


def _mean_position(first: float, last: float, window: int | None) -> float:
    """Mean of ``min(x, window)`` for ``x`` between ``first`` and ``last``."""
    if window is None or last <= window:
        return (first + last) / 2
    if first >= window:
        return float(window)
    return ((window**2 - first**2) / 2 + window * (last - window)) / (last - first)


def _sliding_layers(config: Mapping[str, Any]) -> int:
    """Layers with a window, as each family's config in transformers counts them."""
    layers = int(config["num_hidden_layers"])
    if config.get("layer_types") is not None:
        return list(config["layer_types"]).count("sliding_attention")
    if config.get("sliding_window_pattern") is not None:  # Gemma 3: every nth layer sees everything
        return layers - layers // int(config["sliding_window_pattern"])
    if config.get("model_type") == "gemma2":  # every second layer sees everything
        return layers - layers // 2
    if config.get("max_window_layers") is not None:  # Qwen: the first so many see everything
        return max(0, layers - int(config["max_window_layers"]))
    return layers
