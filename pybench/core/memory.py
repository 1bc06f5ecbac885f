"""Estimated memory of a point: a point that may not fit gets a note, one that certainly doesn't is left out.

The estimate has weights, gradients, optimizer states, activations and logits of training, weights and one sequence's
cache of generation. It lacks workspaces of libraries and what the allocator reserves beyond tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pybench.core.flops import adapter_parameters, cached_numbers, num_parameters
from pybench.model.decoder_shape import DecoderShape
from pybench.model.machine import Devices
from pybench.model.suite import Point
from pybench.model.text import amount_text
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.stage_layers import LOSS_BYTES, rank_bytes, rank_layers, rank_weights, stage_layers
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import STRATEGIES
from pybench.model.workloads.traits import Reason
from pybench.model.workloads.turn import Turn

ESTIMATE_ERROR = 0.1
"""Relative error of the estimate: 93 % of 302 trainings on H100 and H200 are within it (docs/training.md)."""
# Bytes of a logit and its gradient where one compiled kernel makes the loss and keeps float32 in registers.
_COMPILED_LOSS_BYTES = 4
# Bytes of a logit and its logarithm, in float32, of a loss without gradients.
_FORWARD_LOSS_BYTES = 8
# Share of a layer's activations that selective recomputation keeps: matrix products and attention.
_SELECTIVE = 0.5
# Bytes of a weight of four bits: 4 bits, 8 for the scale of 64 weights, 32 for the scale of 256 scales.
_NF4_BYTES = 0.516
# The same with scales of 32 bits for 64 weights; AWQ's 4 bits, and 16 for the scale of 128 weights.
_FOUR_BITS_BYTES = {"bitsandbytes": 0.5625, "awq": 0.516}
# Bytes of a weight in ZeRO (arXiv:1910.02054, table 1): itself or its gradient in 16 bits; itself and AdamW's states in
# float32; DeepSpeed's temporary copies in an update, of at most so many weights at a time in stage 3.
_ZERO_NUMBER, _ZERO_STATES, _ZERO_UPDATE, _ZERO_SUB_GROUP = 2, 12, 8, 1e9
_SPLITS_GRADIENTS, _SPLITS_WEIGHTS = 2, 3  # stages of ZeRO


@dataclass(frozen=True)
class MemoryNeed:
    """Estimated bytes of the fullest GPU.

    ``certain_bytes``: no run of the point needs less. ``is_least``: a run needs more that no setting determines, such
    as the cache of further sequences.
    """

    num_bytes: float
    certain_bytes: float
    is_least: bool

    def __str__(self) -> str:
        """Text for a user: ``about 29.1 GiB``."""
        return f"{'at least' if self.is_least else 'about'} {amount_text(self.num_bytes)}"


def memory_need(point: Point) -> MemoryNeed | None:
    """Need of a point with a model; ``None`` without one."""
    settings, shape = point.settings, point.shape
    if shape is None:
        return None
    if isinstance(settings, Train | Checkpoint):
        return _train_need(settings.training if isinstance(settings, Checkpoint) else settings, shape)
    if isinstance(settings, Generate):
        return _generate_need(settings, shape)
    if isinstance(settings, Turn):  # engine or trainer, whichever is larger; both where the engine never sleeps
        needs = (_generate_need(settings.generation, shape), _train_need(settings.training, shape))
        sizes = zip(*((need.num_bytes, need.certain_bytes) for need in needs), strict=True)
        num_bytes, certain_bytes = (max(pair) if settings.sleep_level else sum(pair) for pair in sizes)
        return MemoryNeed(num_bytes, certain_bytes, is_least=True)
    if not isinstance(settings, Evaluate):
        return None
    # Weights, and all logits of a replica's samples where the loss judges them.
    number = DTYPE_BYTES[settings.dtype]
    weights, logits = float(number * num_parameters(shape)), 0
    if settings.method == "loss" and settings.backend == "torch":
        logits = settings.batch_size * settings.longest_sequence_tokens // settings.data_parallel * shape.vocabulary
    return MemoryNeed(weights + (number + _FORWARD_LOSS_BYTES) * logits, weights, is_least=True)


def may_not_fit(need: MemoryNeed, memory_bytes: float) -> bool:
    """Whether the estimate leaves no room for its error."""
    return need.num_bytes * (1 + ESTIMATE_ERROR) > memory_bytes


def memory_reasons(point: Point, there: Devices) -> Iterator[Reason]:
    """Why the point certainly can't run in the memory that is there; nothing where it may."""
    need, host_bytes = memory_need(point), 0.0
    if isinstance(point.settings, Train) and point.shape is not None:
        host_bytes = train_host_bytes(point.settings, point.shape) / point.settings.nodes
    if need is not None and there.memory_bytes is not None and need.certain_bytes > there.memory_bytes:
        what = "weights, gradients and optimizer states" if isinstance(point.settings, Train) else "weights"
        sizes = f"{amount_text(need.certain_bytes)} a GPU, of {amount_text(there.memory_bytes)}"
        yield "memory", f"{what} alone take {sizes}: take more GPUs, a smaller model or settings that split or pack it"
    elif there.host_memory_bytes is not None and host_bytes > there.host_memory_bytes:
        sizes = f"{amount_text(host_bytes)} of host memory, of {amount_text(there.host_memory_bytes)}"
        yield "memory", f"weights and states take {sizes}: keep states on GPUs, or take more nodes or a smaller model"


def _generate_need(settings: Generate, shape: DecoderShape) -> MemoryNeed:
    """Even parts of the weights, and of the cache of one sequence of the greatest length."""
    # No quantisation packs embedding and head.
    of_layers = _FOUR_BITS_BYTES.get(settings.quantization or "", DTYPE_BYTES[settings.computing_type])
    weights = _model_bytes(shape, settings.dtype, of_layers)
    cache = DTYPE_BYTES[settings.dtype] * cached_numbers(shape, settings.context_tokens)
    ranks = settings.tensor_parallel * settings.pipeline_parallel
    # Arguments of an engine can move weights to host memory, a placement can be uneven.
    certain = 0.0 if settings.engine_args else weights / ranks
    return MemoryNeed((weights + cache) / ranks, certain, is_least=True)


def _train_need(settings: Train, shape: DecoderShape) -> MemoryNeed:
    """Peak of a step on the fullest rank; where the worker finds the batch size, of one sample."""
    traits, number = STRATEGIES[settings.strategy], DTYPE_BYTES[settings.dtype]
    if traits.has_stages:
        layers = rank_layers(stage_layers(settings, shape), settings.pipeline_parallel)
        weights = float(number * max(rank_weights(shape, layers)))
        return MemoryNeed(max(rank_bytes(settings, shape, layers)), weights, settings.finds_batch_size)
    weights, gradients, states = _lasting_bytes(settings, shape)
    samples = 1 if settings.finds_batch_size else settings.micro_batch_size
    passing = _passing_bytes(settings, shape, samples * settings.sequence_tokens // settings.context_parallel)
    buckets = 0.0
    if settings.strategy == "deepspeed":  # the most of backward, and of the update of a rank's part
        update = _ZERO_UPDATE * states / _ZERO_STATES
        if settings.offload_optimizer:
            peak = max(gradients, passing)
        elif settings.zero_stage == _SPLITS_WEIGHTS:
            peak = gradients + max(passing, min(_ZERO_UPDATE * _ZERO_SUB_GROUP, update))
        else:
            peak = max(gradients + passing, update)
    else:
        averages = traits.has_buckets and settings.data_parallel * settings.context_parallel > 1
        buckets = gradients if averages and not settings.gradient_as_bucket_view else 0.0
        # In a lone pass gradients come as activations go.
        held = max(gradients, held_back_bytes(settings, shape))
        peak = held + passing if settings.accumulates else max(gradients, passing)
    certain = 0.0 if settings.deepspeed_config else weights + gradients + states
    return MemoryNeed(weights + states + buckets + peak, certain, settings.finds_batch_size)


def _lasting_bytes(settings: Train, shape: DecoderShape) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer states on one GPU, of a strategy without stages."""
    number, parameters = DTYPE_BYTES[settings.dtype], num_parameters(shape)
    adapters = adapter_parameters(shape, settings)
    trained, frozen = (parameters, 0.0) if adapters is None else (adapters, stored_bytes(settings, shape))
    if settings.strategy == "deepspeed":
        stage, ranks = settings.zero_stage or 1, settings.data_parallel
        weights = (frozen + _ZERO_NUMBER * trained) / (ranks if stage >= _SPLITS_WEIGHTS else 1)
        gradients = _ZERO_NUMBER * trained / (ranks if stage >= _SPLITS_GRADIENTS else 1)
        states = 0.0 if settings.offload_optimizer else _ZERO_STATES * trained / ranks
        return (0.0, 0.0, 0.0) if settings.offload_parameters else (weights, gradients, states)
    if settings.cpu_offload:
        return 0.0, 0.0, 0.0
    share = held_parameters(settings, shape) / parameters
    return (frozen + number * trained) * share, number * trained * share, _state_bytes(settings) * trained * share


def held_parameters(settings: Train, shape: DecoderShape) -> float:
    """Parameters that one rank holds, of a strategy without stages."""
    # Without sequence_parallel each tensor-parallel rank has the whole embedding; torchtune always splits it.
    whole = 0 if settings.sequence_parallel or settings.strategy == "torchtune" else shape.embedding_weights
    of_rank = whole + (num_parameters(shape) - whole) / settings.tensor_parallel
    if STRATEGIES[settings.strategy].fully_shards:
        return of_rank / (settings.num_shards * settings.context_parallel)
    return of_rank


def held_back_bytes(settings: Train, shape: DecoderShape) -> float:
    """Bytes of whole gradients that FSDP holds until the last of several passes splits them; else 0."""
    if settings.strategy != "fsdp" or settings.lora_rank or not settings.accumulates:
        return 0.0
    # Mixed precision adds gradients up in the type that reduces them, float32.
    number = DTYPE_BYTES["float32" if settings.mixed_precision else settings.dtype]
    return number * held_parameters(settings, shape) * settings.num_shards * settings.context_parallel


def _state_bytes(settings: Train) -> int:
    """Bytes of the optimizer's states on a GPU for each trained weight. The driver pages those of ``paged_adamw``."""
    by_name = {"sgd": 0, "adamw_8bit": 2, "paged_adamw": 0, "paged_adamw_8bit": 0}
    return by_name.get(settings.optimizer or "adamw", 2 * DTYPE_BYTES[settings.dtype])


def _passing_bytes(settings: Train, shape: DecoderShape, tokens: int) -> float:
    """Bytes of activations and logits of a pass over ``tokens``, and of weights that are gathered for it.

    With flash attention a layer keeps 8 H + 2 (Q + K) + 4 I numbers of each token for backward: hidden size H,
    intermediate size I, Q queries, K keys. A recomputed layer keeps H, and its activations come one layer at a time
    after the loss. Method: Korthikanti et al., arXiv:2205.05198.
    """
    number, hidden = DTYPE_BYTES[settings.computing_dtype], shape.hidden
    attention = 2 * (shape.heads + shape.key_value_heads) * shape.head_width
    layer = number * (8 * hidden + attention + 4 * shape.intermediate * shape.active_experts) / settings.tensor_parallel
    recomputes = {"full": (number * hidden, layer), "selective": (_SELECTIVE * layer, 0.0)}
    kept, recomputed = recomputes.get(settings.activation_checkpointing or "none", (layer, 0.0))
    if settings.activation_offload:
        kept = 0.0
    logits = min(tokens, settings.loss_chunk_tokens or tokens) * shape.vocabulary
    if settings.splits_vocabulary:
        logits //= settings.tensor_parallel
    loss = (_COMPILED_LOSS_BYTES if settings.compile else LOSS_BYTES) * logits
    if settings.strategy == "unsloth":
        loss = 0  # its kernel makes no logits
    gathers = STRATEGIES[settings.strategy].fully_shards or settings.zero_stage == _SPLITS_WEIGHTS
    num_gathered = shape.layers if settings.reshard_after_forward is False else min(2, shape.layers)
    gathered = number * (shape.end_weights + num_gathered * shape.layer_weights) / settings.tensor_parallel
    return tokens * shape.layers * kept + max(loss, tokens * recomputed) + (gathered if gathers else 0.0)


def train_host_bytes(settings: Train, shape: DecoderShape) -> float:
    """Bytes of weights and states in the memory of all hosts together; 0 where nothing is offloaded.

    ZeRO-Offload (arXiv:2101.06840) has weight, gradient and AdamW's two states in float32, FSDP in ``dtype``, on every
    host with ``hybrid_shard``.
    """
    number, parameters = DTYPE_BYTES[settings.dtype], num_parameters(shape)
    adapters = adapter_parameters(shape, settings)
    trained, frozen = (parameters, 0.0) if adapters is None else (adapters, stored_bytes(settings, shape))
    if settings.cpu_offload:
        copies = settings.nodes if settings.hybrid_shard else 1
        return copies * ((2 * number + _state_bytes(settings)) * trained + frozen)
    states = (_ZERO_STATES + DTYPE_BYTES["float32"]) * trained if settings.offload_optimizer else 0
    return float(states + (number * parameters if settings.offload_parameters else 0))


def stored_bytes(settings: Train, shape: DecoderShape) -> float:
    """Bytes of a model's weights under adapters, in ``dtype`` or in four bits."""
    of_layers = _NF4_BYTES if settings.weights == "nf4" else DTYPE_BYTES[settings.dtype]
    return _model_bytes(shape, settings.dtype, of_layers)


def _model_bytes(shape: DecoderShape, dtype: str, of_layers: float) -> float:
    """Bytes of a model with ``of_layers`` bytes a weight of its layers; embedding and head have ``dtype``."""
    return DTYPE_BYTES[dtype] * shape.end_weights + of_layers * (num_parameters(shape) - shape.end_weights)
