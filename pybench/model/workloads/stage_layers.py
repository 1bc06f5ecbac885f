"""How many layers each stage of a model has: the one rule that workers cut by, and that plans and predictions take."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.decoder_shape import DecoderShape, step_flops_per_token
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.train import Train

LOSS_BYTES = 12
"""Bytes of each logit with its gradient: itself and its gradient in 16 bits, both again in float32."""
# Bytes of a logit that the loss keeps for backward: its softmax in float32.
_SOFTMAX_BYTES = 4
# Of each weight: itself and AdamW's two states.
_LASTING_NUMBERS = 3


def rank_weights(shape: DecoderShape, layers: Sequence[int]) -> tuple[int, ...]:
    """Parameters of each rank with its ``layers``; the first also has the embedding, the last the head."""
    if len(layers) == 1:
        return (shape.layer_weights * layers[0] + shape.end_weights,)
    ends = [shape.embedding_weights, *[0] * (len(layers) - 2), shape.embedding_weights]
    return tuple(shape.layer_weights * count + end for count, end in zip(layers, ends, strict=True))


def rank_bytes(settings: Train, shape: DecoderShape, layers: Sequence[int]) -> tuple[float, ...]:
    """Bytes of each rank of a pipeline by its ``layers``. Of activations only the inputs of layers are counted."""
    number = DTYPE_BYTES[settings.dtype]
    tokens = settings.micro_batch_size * settings.sequence_tokens
    cuts = []
    for rank, (count, weights) in enumerate(zip(layers, rank_weights(shape, layers), strict=True)):
        kept = float(tokens * number * shape.hidden * count)
        logits = float(tokens * shape.vocabulary) if rank == len(layers) - 1 else 0.0
        # Where copies of the pipeline average gradients, DDP's buckets stay beside them.
        lasting = (_LASTING_NUMBERS + (settings.data_parallel > 1)) * number * weights
        cuts.append(lasting + _passing_bytes(settings, rank, float(number * weights), kept, logits))
    return tuple(cuts)


def _passing_bytes(settings: Train, rank: int, gradients: float, kept: float, logits: float) -> float:
    """Peak bytes beside weights and states, with ``logits`` logits."""
    output, loss = DTYPE_BYTES[settings.dtype] * logits, LOSS_BYTES * logits
    parts = settings.num_microbatches
    if parts == 1 and settings.accumulates:
        return gradients + kept + output + loss
    if parts == 1:
        return kept + max(gradients + 2 * output, output + loss)
    # Parts wait for their backward pass, beside all gradients, which the first part's has made. GPipe runs every
    # forward pass first. With 1F1B a rank runs forward passes ahead, one for each later rank; with interleaved 1F1B it
    # runs twice that number, and the passes of its other stages (Narayanan et al., arXiv:2104.04473).
    ranks, stages = settings.pipeline_parallel, settings.stages_per_rank or 1
    ahead = (stages - 1) * ranks + (1 if stages == 1 else 2) * (ranks - 1 - rank)
    waiting = kept * min(ahead / stages, parts - 1) / parts
    if settings.schedule == "gpipe":
        waiting = (kept + _SOFTMAX_BYTES * logits) * (parts - 1) / parts
    # torch keeps the logits of every part, and joins them at the end.
    return gradients + max(waiting + output + loss / parts, 2 * output)


# Ranks whose work differs by less are equally fast.
_ROUNDING = 1e-9


def stage_layers(settings: Train, shape: DecoderShape) -> tuple[int, ...]:
    """Layers of each stage, from the first to the last; rank r of p has the stages r, r + p and so on.

    ``layer_split`` cuts evenly, as ``device_map`` does. ``pipeline_parallel`` cuts so that the slowest rank is as fast
    as can be, and of such cuts by the one whose fullest rank needs least memory. Every stage has a layer; fewer layers
    than stages, which plans refuse, are cut evenly.
    """
    ranks, stages_per_rank = settings.pipeline_parallel, settings.stages_per_rank or 1
    stages = ranks * stages_per_rank
    if settings.strategy != "pipeline_parallel" or stages == 1 or shape.layers <= stages:
        return even_layers(shape.layers, stages)
    work = step_flops_per_token(
        shape,
        0,
        settings.sequence_tokens,
        recompute=settings.activation_checkpointing == "full",
        adapters=settings.lora_rank is not None,
    )
    # Interleaved stages, too, are cut by the work of ranks: the rank with the most work for a microbatch decides, since
    # other ranks work on other parts meanwhile.
    at_most = _at_most(shape.layers, ranks, stages_per_rank, *work)
    return _by_turns(_least_memory(settings, shape, at_most), stages_per_rank, *work)


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage; no two stages differ by more than one."""
    return tuple(layers * (index + 1) // stages - layers * index // stages for index in range(stages))


def rank_layers(stages: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Layers of each rank, of those of all stages."""
    return tuple(sum(stages[rank::ranks]) for rank in range(ranks))


def _at_most(layers: int, ranks: int, least: int, layer: float, head: float) -> list[int]:
    """Layers that each rank can have without being slower than the slowest must be; ``least`` are on every one."""
    others = ranks - 1
    if not others:
        return [layers]
    slowest = min(
        max(-(-(layers - last) // others) * layer, last * layer + head)
        for last in range(least, layers - least * others + 1)
    ) * (1 + _ROUNDING)
    return [*[int(slowest / layer)] * others, int((slowest - head) / layer)]


def _least_memory(settings: Train, shape: DecoderShape, at_most: Sequence[int]) -> list[int]:
    """Layers of each rank: one after the other where least memory is needed with it, which leaves the fullest least."""
    counts = [settings.stages_per_rank or 1] * len(at_most)
    while sum(counts) < shape.layers:
        needed = rank_bytes(settings, shape, [count + 1 for count in counts])
        having_room = [rank for rank, most in enumerate(at_most) if counts[rank] < most]
        counts[min(having_room, key=lambda rank: needed[rank])] += 1
    return counts


def _by_turns(of_ranks: Sequence[int], stages_per_rank: int, layer: float, head: float) -> tuple[int, ...]:
    """Layers of each stage, of those of each rank: one after the other to its stage of least work, the first such."""
    ranks = len(of_ranks)
    stages = [1] * (ranks * stages_per_rank)
    for rank, count in enumerate(of_ranks):
        indices = range(rank, len(stages), ranks)
        for _ in range(count - stages_per_rank):
            work = [stages[index] * layer + (head if index == len(stages) - 1 else 0.0) for index in indices]
            stages[indices[work.index(min(work))]] += 1
    return tuple(stages)
