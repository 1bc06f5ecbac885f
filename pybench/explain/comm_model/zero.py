"""What DeepSpeed's ZeRO exchanges and moves in stages 1 and 2, by its defaults, for a model of 16-bit weights.

ZeRO after Rajbhandari et al. (arXiv:1910.02054); kernels and collectives as in DeepSpeed 0.19, runtime/zero/
stage_1_and_2.py, with torch's AdamW. Each rank updates its share of the weights in float32.
"""

from __future__ import annotations

from pybench.explain.comm_model.figures import NodeFigures

BUCKET_ELEMENTS = 5e8
"""Gradients that are reduced together: DeepSpeed's own ``reduce_bucket_size``."""
# Of every trained parameter: its gradient is copied into a bucket (reads 2, writes 2), and divided there (2 and 2).
_GRADIENT_BYTES = 8
# Of those that a rank updates, kernel by kernel. The gradient is copied back from the bucket and to a buffer of its own
# (4 each); searched for overflow (cast 6, isnan 5, abs 8, comparison 5, or 3, cast 5, maximum 4); summed into a norm in
# float64 (cast 10, norm 8); flattened (4), cast to float32 (6), scaled (8).
_CHECKED_BYTES = 2 * 4 + 36 + 18 + 18
UNFUSED_UPDATE_PASSES = 20
"""torch's AdamW kernel by kernel: decay (1 read, 1 written), first moment (2 and 1), second (1 and 1, 2 and 1), its
root (1 and 1) divided (1 and 1), epsilon (1 and 1), weight (3 and 1)."""
# It is not fused here. A cast to 16 bits follows (reads 4, writes 2).
_UPDATED_BYTES = 4 * UNFUSED_UPDATE_PASSES + 6


def moved_bytes(trained: float, ranks: int) -> float:
    """Memory traffic of one rank beside the passes, in bytes: all gradients, and the update of its share.

    Clipping adds nothing: norm and scale are computed without a limit too.
    """
    return trained * (_GRADIENT_BYTES + (_CHECKED_BYTES + _UPDATED_BYTES) / ranks)


def exchange_s(figures: NodeFigures, trained: float, element_bytes: int, ranks: int) -> float:
    """Seconds of the exchange: gradients all-reduced in buckets, then the updated weights gathered.

    ``overlap_comm`` is off by default: the reductions run in the stream of backward, and nothing hides them. In stage 1
    they follow it, in stage 2 they interrupt it. Raises ``UnmeasuredError``.
    """
    buckets = max(1.0, trained / BUCKET_ELEMENTS)
    reduce_s = figures.collective_s("all_reduce", trained * element_bytes / buckets, ranks)
    return buckets * reduce_s + figures.collective_s("all_gather", trained * element_bytes, ranks)
