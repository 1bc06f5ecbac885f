"""Memory that training takes on a rank that has some of the layers, without libraries' workspaces."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.train import Train

LOSS_BYTES = 12
"""For each logit, when its gradient is made: itself and its gradient in 16 bits, both again in float32."""
# What the loss keeps of each logit for backward: its softmax in float32.
_SOFTMAX_BYTES = 4
# Of each weight: itself and AdamW's two states.
_LASTING_NUMBERS = 3


def rank_weights(shape: DecoderShape, layers: Sequence[int]) -> tuple[int, ...]:
    """Parameters of each rank, which has so many ``layers``: the first has the embedding besides, the last the head."""
    if len(layers) == 1:
        return (shape.layer_weights * layers[0] + shape.end_weights,)
    ends = [shape.embedding_weights, *[0] * (len(layers) - 2), shape.embedding_weights]
    return tuple(shape.layer_weights * count + end for count, end in zip(layers, ends, strict=True))


def rank_bytes(settings: Train, shape: DecoderShape, layers: Sequence[int]) -> tuple[float, ...]:
    """Bytes that each rank of a pipeline takes, which has so many ``layers``.

    Of activations the inputs of layers are counted: all that is kept where layers are recomputed, else a least.
    """
    number = DTYPE_BYTES[settings.dtype]
    tokens = settings.micro_batch_size * settings.sequence_tokens
    found = []
    for rank, (count, weights) in enumerate(zip(layers, rank_weights(shape, layers), strict=True)):
        kept = float(tokens * number * shape.hidden * count)
        logits = float(tokens * shape.vocabulary) if rank == len(layers) - 1 else 0.0
        # Where copies of the pipeline average gradients, DDP's buckets stay beside them.
        lasting = (_LASTING_NUMBERS + (settings.data_parallel > 1)) * number * weights
        found.append(lasting + _passing_bytes(settings, rank, float(number * weights), kept, logits))
    return tuple(found)


def _passing_bytes(settings: Train, rank: int, gradients: float, kept: float, logits: float) -> float:
    """What lies beside weights and states when most is needed, of so many ``logits``."""
    output, loss = DTYPE_BYTES[settings.dtype] * logits, LOSS_BYTES * logits
    parts = settings.num_microbatches
    if parts > 1:
        # torch keeps the logits of every part, and joins them at the end.
        waiting = _waiting_bytes(settings, rank, kept, logits)
        return gradients + max(waiting + output + loss / parts, 2 * output)
    if settings.accumulates:
        return gradients + kept + output + loss
    return kept + max(gradients + 2 * output, output + loss)


def _waiting_bytes(settings: Train, rank: int, kept: float, logits: float) -> float:
    """Kept by the parts that wait for their backward pass, beside all gradients, which the first part's has made.

    GPipe runs every forward pass first. By 1F1B a rank has forward passes of later ones ahead, by interleaved 1F1B
    twice as many and those of its own other stages (Narayanan et al., arXiv:2104.04473); the last stage has none.
    """
    parts, ranks, stages = settings.num_microbatches, settings.pipeline_parallel, settings.stages_per_rank or 1
    if settings.schedule == "gpipe":
        return (kept + _SOFTMAX_BYTES * logits) * (parts - 1) / parts
    ahead = (stages - 1) * ranks + (1 if stages == 1 else 2) * (ranks - 1 - rank)
    return kept * min(ahead / stages, parts - 1) / parts
