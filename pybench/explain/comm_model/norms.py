"""Memory traffic of norms and residual sums, which every tensor-parallel rank computes for all its tokens.

Counted kernel by kernel, of an RMSNorm in float32 over numbers of ``e`` bytes. In plain PyTorch, forward: cast (reads
e, writes 4), square (4, 4), mean (4), product (4, 4), cast (4, e), weight (e, e). Backward: weight (e, e; its own
gradient 3e, its sum e), cast (e, 4), product (4, 4; of the factor 8, 4, summed: 4), mean (4), square (4, 4; doubled 4,
4; 8, 4), their sum (8, 4), cast (4, e). Families that multiply by the weight in float32 do so before the cast. Residual
sums, two in a layer: (2e, e), forward and backward. Gradients of what queries, keys and values read, and gate and up,
are summed three times (2e, e). Fused, as in engines and by a compiler: hidden states and residual are read and written
once; backward reads the gradient beside.
"""

from __future__ import annotations

from pybench.core.norm_families import FLOAT32_NORMS, NORMS_OF_OUTPUTS
from pybench.explain.comm_model.layer_bytes import LayerBytes

_RESIDUAL_SUMS = 2
_GRADIENT_SUMS = 3


def plain_norms(element_bytes: int, model_type: str = "", *, trained: bool = True) -> LayerBytes:
    """Of each hidden number of a layer, kernel by kernel, as transformers' modules run them.

    ``trained``: the norms' weights have gradients.
    """
    one, number, added = one_norm(model_type, element_bytes, trained=trained), _number(model_type), 3 * element_bytes
    return LayerBytes(
        number * one.forward + _RESIDUAL_SUMS * added,
        number * one.backward + (_RESIDUAL_SUMS + _GRADIENT_SUMS) * added,
    )


def one_norm(model_type: str, element_bytes: int, *, trained: bool) -> LayerBytes:
    """Of each number that a norm reads, kernel by kernel."""
    weighted = 4 if model_type in FLOAT32_NORMS else element_bytes
    own = 4 * weighted if trained else 0
    return LayerBytes(28 + 2 * element_bytes + 2 * weighted, 76 + 2 * element_bytes + 2 * weighted + own)


def fused_norms(element_bytes: int, model_type: str = "") -> LayerBytes:
    """Of each hidden number of a layer, with the residual sum in one kernel."""
    number = _number(model_type)
    return LayerBytes(number * 4 * element_bytes, number * 5 * element_bytes)


def _number(model_type: str) -> int:
    """Norms of hidden numbers in a layer: of what attention and MLP read, in some families also of what they give."""
    return 4 if model_type in NORMS_OF_OUTPUTS else 2
