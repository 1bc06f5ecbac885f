"""Bytes of weights as they are stored: in their type, or in four bits."""

from __future__ import annotations

from pybench.core.flops import num_parameters
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.train import Train

# With double quantisation: 4 bits, 8 for the scale of 64 weights, 32 for that of 256 scales.
_NF4_BYTES = 0.516
_NF4_BYTES_OF_WHOLE_SCALES = 0.5625


def stored_bytes(settings: Train, shape: DecoderShape) -> float:
    """Of a model's weights under adapters, in ``dtype`` or in four bits."""
    if settings.weights == "nf4":
        return packed_bytes(shape, settings.dtype, double=settings.double_quantization is not False)
    return float(DTYPE_BYTES[settings.dtype] * num_parameters(shape))


def packed_bytes(shape: DecoderShape, dtype: str, *, double: bool) -> float:
    """Of a model whose layers have four bits; embedding and head have ``dtype``, scales may be ``double`` quantised."""
    ends = shape.end_weights
    packed = _NF4_BYTES if double else _NF4_BYTES_OF_WHOLE_SCALES
    return DTYPE_BYTES[dtype] * ends + packed * (num_parameters(shape) - ends)
