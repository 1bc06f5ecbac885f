"""Host memory that a turn takes, against what the host has: copies of what leaves the GPUs, and a handover's file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pybench.core.flops import num_parameters
from pybench.core.memory.activations import kept_bytes
from pybench.core.memory.train import ESTIMATE_ERROR
from pybench.model.decoder_shape import DecoderShape
from pybench.model.memory_text import amount_text
from pybench.model.workloads.rules import GivenSettings
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.turn import Turn
from pybench.model.workloads.turn_rules import turn_rules

_Matrices = tuple[int, float]
# How many of each size in bytes.
_Blocks = Counter[int]
# The sleep level at which the engine's weights are kept in host memory.
_KEPT = 1
# A weight and AdamW's two states.
_TRAINED_COPIES = 3
# In which each trainer measures the rates of copies; torch keeps it.
_RATES_BYTES = 2**28
# What vLLM and the batches of training pin besides: 64 to 128 MiB in kept runs on one GPU, not known of several.
_BUFFERS_BYTES = 2**27
# Of a weight of four bits.
_NF4_BYTES = 0.5
# A matrix from 10 MiB on has a segment of its own, smaller ones share segments of 20 MiB.
_OWN_SEGMENT_BYTES = 10 * 2**20
_SHARED_SEGMENT_BYTES = 20 * 2**20


def turn_host_bytes(settings: Turn, shape: DecoderShape) -> float:
    """Pinned bytes, and of a handover by file of all weights the file and the copy that it is first written from.

    The copy is gone before a worker reads ahead for the first time.
    """
    pinned = pinned_bytes(settings, shape)
    if settings.handover != "file" or settings.lora_rank is not None:
        return pinned
    file = DTYPE_BYTES[settings.dtype] * num_parameters(shape)
    at_first = pinned_bytes(replace(settings, async_weight_syncing=False), shape)
    return file + max(at_first + file, pinned)


def pinned_bytes(settings: Turn, shape: DecoderShape) -> float:
    """Bytes of pinned host memory, all ranks together: engine asleep at level 1, trainer away from level 1 on.

    torch pins a block of its own for each copy, of the next power of two, and keeps it for the next copy of its size
    (ATen/core/CachingHostAllocator.h): vLLM's workers read ahead into what the engine's sleep has left. Adapters, well
    under 1 %, are left out. Of activations that are offloaded, those of one pass.
    """
    engine = _engine_blocks(settings, shape) if settings.sleep_level == _KEPT else _Blocks()
    if settings.async_weight_syncing and settings.backend == "vllm" and settings.lora_rank is None:
        # Every worker reads all weights.
        read = (
            (settings.tensor_parallel * count, size) for count, size in _matrices(shape, DTYPE_BYTES[settings.dtype])
        )
        engine |= _blocks(read, 1)
    trainer = _trainer_bytes(settings, shape) if settings.sleep_level else 0.0
    trainer += _activation_bytes(settings, shape)
    return _sum(engine) + trainer + settings.num_trainers * _RATES_BYTES + _BUFFERS_BYTES


def _activation_bytes(settings: Turn, shape: DecoderShape) -> float:
    if not settings.activation_offload:
        return 0.0
    training = settings.training
    tokens = training.micro_batch_size * training.sequence_tokens / training.context_parallel
    return settings.num_trainers * tokens * kept_bytes(replace(training, activation_offload=None), shape)


def turn_host_reason(settings: Turn, shape: DecoderShape, memory_bytes: float) -> str | None:
    """Why a host of ``memory_bytes`` can't hold what leaves its GPUs, with what to change; ``None`` where it may."""
    need = turn_host_bytes(settings, shape)
    if need <= memory_bytes * (1 + ESTIMATE_ERROR):
        return None
    fitting = [text for text, other in _changes(settings) if turn_host_bytes(other, shape) <= memory_bytes]
    needs = f"needs about {amount_text(need)} of host memory for what leaves the GPUs, of {amount_text(memory_bytes)}"
    return f"{needs}: fits with {' or '.join((*fitting, 'a smaller model'))}"


def _engine_blocks(settings: Turn, shape: DecoderShape) -> _Blocks:
    """For all weights. vLLM joins some matrices, and copies the segments of GPU memory that they lie in."""
    number, shares = DTYPE_BYTES[settings.dtype], settings.tensor_parallel
    if settings.backend != "vllm":
        return _blocks(_matrices(shape, number), shares)
    width = shape.hidden * shape.head_width
    joined = (
        (shape.layers, number * width * (shape.heads + 2 * shape.key_value_heads)),
        (shape.layers, number * width * shape.heads),
        (shape.layers, number * 2 * shape.hidden * shape.intermediate),
        (shape.layers, number * shape.hidden * shape.intermediate),
    )
    found = _Blocks()
    for count, size in (*joined, _ends(shape, number)):
        # Small ones lie together in segments (c10/cuda/CUDACachingAllocator.h).
        segment = size / shares if size / shares >= _OWN_SEGMENT_BYTES else _SHARED_SEGMENT_BYTES
        found[_block(segment)] += math.ceil(count * size / shares / segment) * shares
    return found


def _trainer_bytes(settings: Turn, shape: DecoderShape) -> float:
    """Weights and states of all trainers, frozen weights alone under adapters."""
    number, shares = DTYPE_BYTES[settings.dtype], settings.num_weight_shares
    matrices = _matrices(shape, number, _NF4_BYTES if settings.weights == "nf4" else number)
    held = _sum(_blocks(matrices, shares)) * settings.num_trainers / shares
    # Ranks that share layers have the whole embedding each.
    held += (settings.train_tensor_parallel - 1) * _block(number * shape.embedding_weights)
    return held if settings.lora_rank is not None else _TRAINED_COPIES * held


def _matrices(shape: DecoderShape, number: float, of_layers: float | None = None) -> tuple[_Matrices, ...]:
    """How many there are and their bytes, ``number`` for each weight, ``of_layers`` where these have others."""
    each = of_layers or number
    width = each * shape.hidden * shape.head_width
    return (
        (2 * shape.layers, width * shape.heads),
        (2 * shape.layers, width * shape.key_value_heads),
        (3 * shape.layers * shape.num_experts, each * shape.hidden * shape.intermediate),
        _ends(shape, number),
    )


def _ends(shape: DecoderShape, number: float) -> _Matrices:
    return 1 if shape.tied_embeddings else 2, number * shape.embedding_weights


def _blocks(matrices: Iterable[_Matrices], shares: int) -> _Blocks:
    """For matrices that are cut into ``shares`` each."""
    found = _Blocks()
    for count, size in matrices:
        found[_block(size / shares)] += count * shares
    return found


def _sum(blocks: _Blocks) -> float:
    return float(sum(size * count for size, count in blocks.items()))


def _block(num_bytes: float) -> int:
    """The next power of two."""
    return 1 << (math.ceil(num_bytes) - 1).bit_length()


def _changes(settings: Turn) -> Iterator[tuple[str, Turn]]:
    """Single changes that need less host memory, of those that the turn's rules allow."""
    changes: tuple[tuple[str, Turn], ...] = (
        ("sleep_level = 2", replace(settings, sleep_level=2)),
        ("async_weight_syncing = false", replace(settings, async_weight_syncing=False)),
        ("handover = 'direct'", replace(settings, handover="direct", processes=None)),
    )
    if settings.lora_rank is not None:
        changes += (("weights = 'nf4'", replace(settings, weights="nf4")),)
    yield from ((text, other) for text, other in changes if not any(turn_rules(GivenSettings(other.to_json(), {}))))
