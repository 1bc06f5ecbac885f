"""Parameters and FLOPs of a decoder from its shape alone."""

from __future__ import annotations

from pybench.model.suite import Architecture

# Upper limits in parameters. A class gathers models whose compute and communication stand in about the same ratio.
_CLASSES: tuple[tuple[float, str], ...] = (
    (0.5e9, "tiny"),
    (2e9, "1b"),
    (5e9, "3b"),
    (12e9, "8b"),
    (25e9, "20b"),
    (45e9, "30b"),
    (90e9, "70b"),
    (250e9, "200b"),
)

MODEL_CLASSES = (*(name for _, name in _CLASSES), "giant")


def num_parameters(architecture: Architecture) -> int:
    """Weights of a decoder with grouped-query attention and a gated MLP; every expert of a mixture counts.

    Norms and biases, under 0.1 % of a model, are left out.
    """
    hidden = architecture["hidden_size"]
    vocabulary = architecture["vocab_size"] * hidden
    heads = 1 if architecture.get("tie_word_embeddings", False) else 2
    layer = _attention_weights(architecture) + _mlp_weights(architecture) * _experts(architecture)
    return int(vocabulary * heads + layer * architecture["num_hidden_layers"])


def forward_flops_per_token(architecture: Architecture, context_tokens: float) -> float:
    """Floating-point operations of one token's forward pass at ``context_tokens`` of context.

    2 for each active weight outside the embedding, plus attention's scores and values: 4 · layers · heads · head width
    · context (PaLM, arXiv:2204.02311, appendix B, without its backward factor of 3).
    """
    active = architecture.get("num_experts_per_tok", 1) if _experts(architecture) > 1 else 1
    layer = _attention_weights(architecture) + _mlp_weights(architecture) * active
    layers = float(2 * layer * architecture["num_hidden_layers"])
    return layers + head_flops_per_token(architecture) + attention_flops_per_token(architecture, context_tokens)


def attention_flops_per_token(architecture: Architecture, context_tokens: float) -> float:
    """Of one token's forward pass: attention's scores and values, 4 · layers · heads · head width · context."""
    width = architecture["num_attention_heads"] * _head_width(architecture)
    return float(4 * architecture["num_hidden_layers"] * width * context_tokens)


def head_flops_per_token(architecture: Architecture) -> float:
    """Of one token's forward pass: the projection to the vocabulary."""
    return float(2 * architecture["vocab_size"] * architecture["hidden_size"])


def generate_flops(architecture: Architecture, prompt_tokens: float, output_tokens: float) -> float:
    """Floating-point operations to generate one sequence, the prefill included.

    Prefill runs the prompt through every layer and its last token through the head, which gives the first output token;
    each one after it is a forward pass of its own at the context so far. Same terms as :func:`forward_flops_per_token`.
    """
    head = 2 * architecture["vocab_size"] * architecture["hidden_size"]
    prefill = prompt_tokens * (forward_flops_per_token(architecture, (prompt_tokens + 1) / 2) - head) + head
    passes = output_tokens - 1
    return float(prefill + passes * forward_flops_per_token(architecture, prompt_tokens + output_tokens / 2))


def decode_round_bytes(
    architecture: Architecture, num_sequences: float, context_tokens: float, *, weight_bytes: int, cache_bytes: int
) -> float | None:
    """Bytes that one decode round must read: every weight outside the embedding, and each sequence's keys and values.

    Bytes of weights plus cache, over the time of a round, are the achieved bandwidth of memory-bandwidth utilisation
    (Databricks, LLM Inference Performance Engineering: Best Practices, 2023). ``None`` for models that read less than
    everything: mixtures of experts, and sliding windows.
    """
    if _experts(architecture) > 1 or architecture.get("sliding_window"):
        return None
    tied = architecture.get("tie_word_embeddings", False)
    embedding = 0 if tied else architecture["vocab_size"] * architecture["hidden_size"]
    weights = (num_parameters(architecture) - embedding) * weight_bytes
    cache = 2 * architecture["num_hidden_layers"] * architecture["num_key_value_heads"] * _head_width(architecture)
    return float(weights + num_sequences * context_tokens * cache * cache_bytes)


def model_class(architecture: Architecture) -> str:
    """Size class that expected tables are keyed by: ``tiny``, ``1b``, ``8b`` … ``200b``, above that ``giant``."""
    count = num_parameters(architecture)
    return next((name for limit, name in _CLASSES if count < limit), MODEL_CLASSES[-1])


def _head_width(architecture: Architecture) -> int:
    return int(architecture.get("head_dim") or architecture["hidden_size"] // architecture["num_attention_heads"])


def _attention_weights(architecture: Architecture) -> int:
    heads = 2 * architecture["num_attention_heads"] + 2 * architecture["num_key_value_heads"]
    return int(architecture["hidden_size"] * heads * _head_width(architecture))


def _mlp_weights(architecture: Architecture) -> int:
    return int(3 * architecture["hidden_size"] * architecture["intermediate_size"])


def _experts(architecture: Architecture) -> int:
    return int(architecture.get("num_local_experts") or architecture.get("num_experts") or 1)
