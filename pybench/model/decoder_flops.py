"""Floating-point operations of a decoder's passes over a token, from its shape alone."""

from __future__ import annotations

from pybench.model.decoder_shape import DecoderShape


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
