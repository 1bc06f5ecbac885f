"""Memory traffic of norms and residual sums, which every tensor-parallel rank computes for all its tokens.

Counted kernel by kernel, of an RMSNorm in float32 over numbers of ``e`` bytes. In plain PyTorch, forward: cast (reads
e, writes 4), square (4, 4), mean (4), product (4, 4), cast (4, e), weight (e, e), residual sum (2e, e). Backward:
weight (e, e; its own gradient 3e, its sum e), cast (e, 4), product (4, 4; of the factor 8, 4, summed: 4), mean (4),
square (4, 4; 8, 4), their sum (8, 4), cast (4, e), residual sum (2e, e). Fused, as in engines and by a compiler: hidden
states and residual are read and written once; backward reads the gradient beside.
"""

from __future__ import annotations

from pybench.compute.comm_model.layer_bytes import LayerBytes

_PER_LAYER = 2


def plain_norms(element_bytes: int) -> LayerBytes:
    """Of each hidden number, kernel by kernel, as transformers' modules run them."""
    return LayerBytes(_PER_LAYER * (28 + 7 * element_bytes), _PER_LAYER * (68 + 11 * element_bytes))


def fused_norms(element_bytes: int) -> LayerBytes:
    """Of each hidden number, with the residual sum in one kernel."""
    return LayerBytes(_PER_LAYER * 4 * element_bytes, _PER_LAYER * 5 * element_bytes)
