"""Parameters, floating-point operations and bytes of a decoder, and of its LoRA adapters, from its shape alone."""

from __future__ import annotations

from functools import lru_cache

from pybench.model.decoder_shape import (
    DecoderShape,
    backward_flops_per_token,
    forward_flops_per_token,
    head_flops_per_token,
    step_flops_per_token,
)
from pybench.model.workloads.train import Train, projections

# Upper limits in parameters. Models of one class have about the same ratio of compute to communication.
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
    return shape.end_weights + shape.layer_weights * shape.layers


@lru_cache(maxsize=4096)
def generate_flops(shape: DecoderShape, prompt_tokens: float, output_tokens: float) -> float:
    """Floating-point operations to generate one sequence, the prefill included.

    Prefill runs the prompt through every layer, and its last token through the head, which gives the first output
    token. Each later token is a forward pass at its context. Same terms as :func:`forward_flops_per_token`.
    """
    head = head_flops_per_token(shape)
    # The nth token attends to n: to the mean of n - 1/2 and n + 1/2.
    start, middle, end = 0.5, prompt_tokens + 0.5, prompt_tokens + output_tokens - 0.5
    prefill = prompt_tokens * (forward_flops_per_token(shape, start, middle) - head) + head
    return prefill + (output_tokens - 1) * forward_flops_per_token(shape, middle, end)


def read_weights(shape: DecoderShape, num_tokens: float) -> float:
    """Weights that a forward pass of ``num_tokens`` reads, which may be a mean.

    All but the embedding, of which a pass reads some rows; a tied embedding is the head. In a mixture, the experts that
    some token chooses: with even routers, as ours are, one token misses an expert with probability 1 - k / n.
    """
    missed: float = (1 - shape.active_experts / shape.num_experts) ** num_tokens
    unread = shape.layers * shape.expert_weights * shape.num_experts * missed
    return num_parameters(shape) - (0 if shape.tied_embeddings else shape.embedding_weights) - unread


def cached_numbers(shape: DecoderShape, first: float, last: float | None = None) -> float:
    """Keys and values that a token attends to, over all layers. Contexts as in :func:`forward_flops_per_token`."""
    return 2 * shape.key_value_heads * shape.head_width * shape.attended_tokens(first, last)


def decode_round_bytes(
    shape: DecoderShape,
    num_sequences: float,
    context_tokens: float,
    *,
    weight_bytes: int,
    head_bytes: int,
    cache_bytes: int,
) -> float:
    """Bytes that one decode round must read: :func:`read_weights`, and each sequence's keys and values.

    ``head_bytes`` is the size of one weight of the head, which some quantisations keep unpacked.

    Bytes of weights plus cache, over the time of a round, are the achieved bandwidth of memory-bandwidth utilisation
    (Databricks, LLM Inference Performance Engineering: Best Practices, 2023).
    """
    head = shape.embedding_weights
    weights = (read_weights(shape, num_sequences) - head) * weight_bytes + head * head_bytes
    return float(weights + num_sequences * cached_numbers(shape, context_tokens) * cache_bytes)


def model_class(shape: DecoderShape) -> str:
    """Size class that expected tables are keyed by: ``tiny``, ``1b``, ``8b`` … ``200b``, above that ``giant``."""
    count = num_parameters(shape)
    return next((name for limit, name in _CLASSES if count < limit), MODEL_CLASSES[-1])


def model_flops_per_token(shape: DecoderShape, settings: Train) -> float:
    """Operations of one token that the model needs, by PaLM (arXiv:2204.02311, appendix B): 6 N + 12 L H Q T.

    LoRA needs fewer; see :func:`~pybench.model.decoder_shape.backward_flops_per_token`.
    """
    tokens = settings.sequence_tokens
    backward = backward_flops_per_token(shape, tokens, adapters=settings.lora_rank is not None)
    return forward_flops_per_token(shape, tokens) + backward


def hardware_flops_per_token(shape: DecoderShape, settings: Train) -> float:
    """:func:`model_flops_per_token` with recomputation.

    Full checkpointing runs every layer's forward twice, a loss in chunks the head's. Selective checkpointing keeps
    matrix products and attention, so nothing counted here runs twice.
    """
    # PaLM's count: each token attends to the whole sequence.
    layer, head = step_flops_per_token(
        shape,
        settings.sequence_tokens,
        settings.sequence_tokens,
        recompute=settings.activation_checkpointing == "full",
        loss_in_chunks=settings.loss_chunk_tokens is not None,
        adapters=settings.lora_rank is not None,
    )
    return layer * shape.layers + head


def adapter_parameters(shape: DecoderShape, settings: Train) -> int | None:
    """Weights of all LoRA adapters (arXiv:2106.09685); ``None`` without LoRA.

    Rank times inputs and outputs of each target, in every layer. Fused projections count one by one.
    """
    if settings.lora_rank is None:
        return None
    hidden, inner = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    sides = {
        **dict.fromkeys(("q_proj", "o_proj"), hidden + queries),
        **dict.fromkeys(("k_proj", "v_proj"), hidden + keys),
        **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), hidden + inner),
    }
    return shape.layers * settings.lora_rank * sum(sides[name] for name in projections(settings.lora_targets))
