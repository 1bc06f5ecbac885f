"""Memory traffic of a mixture's experts but for their products, which plain PyTorch runs kernel by kernel.

A row is a token at one of its k experts. Of gpt-oss as transformers 5.17 runs it by grouped products, numbers read and
written of each row's hidden and intermediate numbers. Forward, hidden: rows gathered (1 + 1/k), masked (2), the bias
behind gathered and added (4), masked (2), weighted (2), put in order (2) and summed (1 + 1/k); intermediate, gate and
up together: bias gathered and added (8), masked (4), clamped (4), the gate (12). Backward mirrors it: 16 + 4/k and 47,
and where biases are trained their sums read another 1 and 2.
"""

from __future__ import annotations

from pybench.explain.comm_model.layer_bytes import LayerBytes
from pybench.model.decoder_shape import DecoderShape


def plain_experts(decoder: DecoderShape, element_bytes: int, *, trained: bool) -> LayerBytes:
    """Of a token, kernel by kernel; ``trained``: their weights and biases have gradients."""
    rows = decoder.active_experts
    forward = (14 * rows + 2) * decoder.hidden + 28 * rows * decoder.intermediate
    backward = ((16 + trained) * rows + 4) * decoder.hidden + (47 + 2 * trained) * rows * decoder.intermediate
    return LayerBytes(element_bytes * forward, element_bytes * backward)
