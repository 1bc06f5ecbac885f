"""How many layers each stage of a model has: the one rule that workers cut by, and that plans and predictions take."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.decoder_flops import step_flops_per_token
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.stage_memory import rank_bytes
from pybench.model.workloads.train import Train

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
    # Interleaved stages, too, are cut by the work of ranks, not of single stages: the rank whose stages together take
    # longest for a microbatch decides, since others have further parts to do while one of its stages takes longer.
    at_most = _at_most(shape.layers, ranks, stages_per_rank, *work)
    return _by_turns(_least_memory(settings, shape, at_most), stages_per_rank, *work)


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """So many ``layers`` over so many ``stages``, of which no two differ by more than one."""
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
    found = [settings.stages_per_rank or 1] * len(at_most)
    while sum(found) < shape.layers:
        needed = rank_bytes(settings, shape, [count + 1 for count in found])
        having_room = [rank for rank, most in enumerate(at_most) if found[rank] < most]
        found[min(having_room, key=lambda rank: needed[rank])] += 1
    return found


def _by_turns(of_ranks: Sequence[int], stages_per_rank: int, layer: float, head: float) -> tuple[int, ...]:
    """Layers of each stage, of those of each rank: one after the other to its stage of least work, the first such."""
    ranks = len(of_ranks)
    stages = [1] * (ranks * stages_per_rank)
    for rank, count in enumerate(of_ranks):
        own = range(rank, len(stages), ranks)
        for _ in range(count - stages_per_rank):
            work = [stages[index] * layer + (head if index == len(stages) - 1 else 0.0) for index in own]
            stages[own[work.index(min(work))]] += 1
    return tuple(stages)
