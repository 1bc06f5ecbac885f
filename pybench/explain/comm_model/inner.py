"""Memory traffic between a layer's products: of its gated activation and its rotary embedding, split with the layers.

Counted kernel by kernel, in numbers of ``e`` bytes. Of each intermediate number, forward: activation (reads and writes
1), times up (2 and 1); backward: gradients of both factors (2 and 1 each) and of the activation (2 and 1). Of each
number of queries and keys, forward: times cosine (1 and 1), half negated (1/2 and 1/2), joined (1 and 1), times sine (1
and 1), their sum (2 and 1); backward: the two products (1 and 1 each), halves put in place (1/2 and 1 each), half
negated (1/2 and 1/2), two sums (2 and 1 each), put in the order of tokens (1 and 1). Norms of heads, where a family has
them, are of the latter numbers. Fused, as a compiler makes them: the activation reads gate and up and writes their
product, backward reads its gradient beside and writes two; a rotation reads and writes once, and heads are normalised
on the way.
"""

from __future__ import annotations

from pybench.core.norm_families import NORMS_OF_HEADS
from pybench.explain.comm_model.layer_bytes import LayerBytes
from pybench.explain.comm_model.norms import one_norm
from pybench.model.decoder_shape import DecoderShape


def plain_inner(decoder: DecoderShape, element_bytes: int, *, trained: bool) -> LayerBytes:
    """Of a token in a layer, kernel by kernel, as transformers' modules run them; of a mixture without its experts.

    ``trained``: norms have gradients.
    """
    turned, gated = _turned(decoder), decoder.intermediate if decoder.num_experts == 1 else 0
    found = LayerBytes((10 * turned + 5 * gated) * element_bytes, (18 * turned + 9 * gated) * element_bytes)
    if decoder.model_type not in NORMS_OF_HEADS:
        return found
    norm = one_norm(decoder.model_type, element_bytes, trained=trained)
    return found + LayerBytes(turned * norm.forward, turned * norm.backward)


def fused_inner(decoder: DecoderShape, element_bytes: int) -> LayerBytes:
    """Of a token in a layer, each in one kernel, as a compiler makes them."""
    turned, gated = _turned(decoder), decoder.intermediate
    return LayerBytes((2 * turned + 3 * gated) * element_bytes, (2 * turned + 5 * gated) * element_bytes)


def gathered_keys(decoder: DecoderShape, element_bytes: int, chunks: int, *, in_order: bool) -> LayerBytes:
    """Of one of a chunk's tokens in a layer: of as many gathered keys and values as there are chunks.

    Where several samples lie in a chunk they are put in order (1 and 1), unless ``in_order``; under a mask, keys and
    values of grouped heads are repeated for each. Their gradients go the same way back.
    """
    keys = decoder.key_value_heads * decoder.head_width
    repeated = decoder.heads * decoder.head_width + keys if decoder.heads > decoder.key_value_heads else 0
    moved = 2 * chunks * ((0 if in_order else 2 * keys) + repeated) * element_bytes
    return LayerBytes(moved, moved)


def _turned(decoder: DecoderShape) -> int:
    return (decoder.heads + decoder.key_value_heads) * decoder.head_width
