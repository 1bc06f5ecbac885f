"""Host memory that a turn takes, against what the host has: copies of what leaves the GPUs, and a handover's file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pybench.compute.flops import num_parameters
from pybench.compute.memory_text import amount_text
from pybench.compute.train_memory import ESTIMATE_ERROR
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.rules import GivenSettings
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.turn import Turn
from pybench.model.workloads.turn_rules import turn_rules

_Matrices = tuple[int, float]
# The sleep level at which the engine's weights are kept in host memory.
_KEPT = 1
# A weight and AdamW's two states.
_TRAINED_COPIES = 3
# In which each trainer measures the rates of copies; torch keeps it.
_RATES_BYTES = 2**28
# Of a weight of four bits.
_NF4_BYTES = 0.5
# A matrix from 10 MiB on has a segment of its own, smaller ones share segments of 20 MiB.
_OWN_SEGMENT_BYTES = 10 * 2**20
_SHARED_SEGMENT_BYTES = 20 * 2**20
# The file lies in shared memory, beside the copy that it is written from.
_FILE_COPIES = 2


def turn_host_bytes(settings: Turn, shape: DecoderShape) -> float:
    """Pinned bytes, and of a handover by file of all weights the file and the copy that it is written from."""
    by_file = settings.handover == "file" and settings.lora_rank is None
    file = _FILE_COPIES * DTYPE_BYTES[settings.dtype] * num_parameters(shape) if by_file else 0.0
    return pinned_bytes(settings, shape) + file


def pinned_bytes(settings: Turn, shape: DecoderShape) -> float:
    """Bytes of pinned host memory, all ranks together: engine asleep at level 1, trainer away from level 1 on.

    torch pins a block of its own for each copy, of the next power of two (ATen/core/CachingHostAllocator.h).
    Adapters, well under 1 %, are left out.
    """
    engine = _engine_bytes(settings, shape) if settings.sleep_level == _KEPT else 0.0
    trainer = _trainer_bytes(settings, shape) if settings.sleep_level else 0.0
    return engine + trainer + settings.num_trainers * _RATES_BYTES


def turn_host_reason(settings: Turn, shape: DecoderShape, memory_bytes: float) -> str | None:
    """Why a host of ``memory_bytes`` can't hold what leaves its GPUs, with what to change; ``None`` where it may."""
    need = turn_host_bytes(settings, shape)
    if need <= memory_bytes * (1 + ESTIMATE_ERROR):
        return None
    fitting = [text for text, other in _changes(settings) if turn_host_bytes(other, shape) <= memory_bytes]
    needs = f"needs about {amount_text(need)} of host memory for what leaves the GPUs, of {amount_text(memory_bytes)}"
    return f"{needs}: fits with {' or '.join((*fitting, 'a smaller model'))}"


def _engine_bytes(settings: Turn, shape: DecoderShape) -> float:
    """All weights. vLLM joins some matrices, and copies the segments of GPU memory that they lie in."""
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
    return sum(count * shares * _segment(size / shares) for count, size in (*joined, _ends(shape, number)))


def _trainer_bytes(settings: Turn, shape: DecoderShape) -> float:
    """Weights and states of all trainers, frozen weights alone under adapters."""
    number, shares = DTYPE_BYTES[settings.dtype], settings.num_weight_shares
    matrices = _matrices(shape, number, _NF4_BYTES if settings.weights == "nf4" else number)
    held = _blocks(matrices, shares) * settings.num_trainers / shares
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


def _blocks(matrices: Iterable[_Matrices], shares: int) -> float:
    """Bytes of blocks for matrices that are cut into ``shares`` each."""
    return float(sum(count * shares * _block(size / shares) for count, size in matrices))


def _segment(num_bytes: float) -> float:
    """Bytes of blocks for a matrix in GPU memory, where small ones lie together (c10/cuda/CUDACachingAllocator.h)."""
    if num_bytes >= _OWN_SEGMENT_BYTES:
        return _block(num_bytes)
    return num_bytes * _block(_SHARED_SEGMENT_BYTES) / _SHARED_SEGMENT_BYTES


def _block(num_bytes: float) -> int:
    """The next power of two."""
    return 1 << (math.ceil(num_bytes) - 1).bit_length()


def _changes(settings: Turn) -> Iterator[tuple[str, Turn]]:
    """Single changes that need less host memory, of those that the turn's rules allow."""
    changes: tuple[tuple[str, Turn], ...] = (
        ("sleep_level = 2", replace(settings, sleep_level=2)),
        ("handover = 'direct'", replace(settings, handover="direct", processes=None)),
    )
    if settings.lora_rank is not None:
        changes += (("weights = 'nf4'", replace(settings, weights="nf4")),)
    yield from ((text, other) for text, other in changes if not any(turn_rules(GivenSettings(other.to_json(), {}))))
