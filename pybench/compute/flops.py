"""Parameters, floating-point operations and bytes of a decoder from its shape alone."""

from __future__ import annotations

from pybench.model.decoder_shape import DecoderShape

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


def num_parameters(shape: DecoderShape) -> int:
    """Weights of a decoder with grouped-query attention and a gated MLP; every expert of a mixture counts.

    Norms, biases and routers, under 0.1 % of a model, are left out.
    """
    layer = shape.attention_weights + shape.expert_weights * shape.num_experts
    return shape.end_weights + layer * shape.layers


def forward_flops_per_token(shape: DecoderShape, first: float, last: float | None = None) -> float:
    """Floating-point operations of one token's forward pass; with ``last``, the mean over such contexts, in tokens.

    2 for each active weight outside the embedding, plus attention's scores and values: 4 · heads · head width · context
    in each layer (PaLM, arXiv:2204.02311, appendix B, without its backward factor of 3).
    """
    layer = shape.attention_weights + shape.expert_weights * shape.active_experts
    layers = float(2 * layer * shape.layers)
    return layers + head_flops_per_token(shape) + attention_flops_per_token(shape, first, last)


def attention_flops_per_token(shape: DecoderShape, first: float, last: float | None = None) -> float:
    """Of one token's forward pass: attention's scores and values. Contexts as in :func:`forward_flops_per_token`."""
    return 4 * shape.heads * shape.head_width * shape.attended_tokens(first, last)


def backward_flops_per_token(shape: DecoderShape, first: float, last: float | None = None, *, adapters: bool) -> float:
    """Of one token's backward pass: twice forward. Contexts as in :func:`forward_flops_per_token`.

    Under ``adapters`` (LoRA) the frozen weights get no gradient of their own: theirs is once forward, attention's
    twice. The adapters' own products, about 1 % of the weights', are left out.
    """
    forward = forward_flops_per_token(shape, first, last)
    return forward + (attention_flops_per_token(shape, first, last) if adapters else forward)


def head_flops_per_token(shape: DecoderShape) -> float:
    """Of one token's forward pass: the projection to the vocabulary."""
    return 2.0 * shape.embedding_weights


def generate_flops(shape: DecoderShape, prompt_tokens: float, output_tokens: float) -> float:
    """Floating-point operations to generate one sequence, the prefill included.

    Prefill runs the prompt through every layer and its last token through the head, which gives the first output token;
    each one after it is a forward pass of its own at the context so far. Same terms as :func:`forward_flops_per_token`.
    """
    head = head_flops_per_token(shape)
    # The nth token attends to n: to the mean of n - 1/2 and n + 1/2.
    start, middle, end = 0.5, prompt_tokens + 0.5, prompt_tokens + output_tokens - 0.5
    prefill = prompt_tokens * (forward_flops_per_token(shape, start, middle) - head) + head
    return prefill + (output_tokens - 1) * forward_flops_per_token(shape, middle, end)


def read_weights(shape: DecoderShape) -> int:
    """Weights that a forward pass reads: all but the embedding, of which it reads some rows; tied, it is the head."""
    return num_parameters(shape) - (0 if shape.tied_embeddings else shape.embedding_weights)


def cached_numbers(shape: DecoderShape, first: float, last: float | None = None) -> float:
    """Keys and values that a token attends to, over all layers. Contexts as in :func:`forward_flops_per_token`."""
    return 2 * shape.key_value_heads * shape.head_width * shape.attended_tokens(first, last)


def decode_round_bytes(
    shape: DecoderShape, num_sequences: float, context_tokens: float, *, weight_bytes: int, cache_bytes: int
) -> float | None:
    """Bytes that one decode round must read: every weight outside the embedding, and each sequence's keys and values.

    Bytes of weights plus cache, over the time of a round, are the achieved bandwidth of memory-bandwidth utilisation
    (Databricks, LLM Inference Performance Engineering: Best Practices, 2023). ``None`` for mixtures of experts: how
    many weights a round reads depends on which experts its tokens choose.
    """
    if shape.num_experts > 1:
        return None
    weights = read_weights(shape) * weight_bytes
    return float(weights + num_sequences * cached_numbers(shape, context_tokens) * cache_bytes)


def model_class(shape: DecoderShape) -> str:
    """Size class that expected tables are keyed by: ``tiny``, ``1b``, ``8b`` … ``200b``, above that ``giant``."""
    count = num_parameters(shape)
    return next((name for limit, name in _CLASSES if count < limit), MODEL_CLASSES[-1])
