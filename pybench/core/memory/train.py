"""Memory that training takes on the GPU that holds most, estimated from the settings.

Kept runs confirm it (:data:`ESTIMATE_ERROR`). Where it is not known what the layers keep for backward
(:func:`~pybench.core.memory.activations.kept_is_known`), it is the least that is needed.
"""

from __future__ import annotations

from pybench.core.adapters import adapter_parameters
from pybench.core.flops import cached_numbers, num_parameters
from pybench.core.memory.activations import kept_bytes, recomputed_bytes
from pybench.core.memory.weights import stored_bytes
from pybench.core.memory.zero import HALF_BYTES, LASTING_BYTES, zero_bytes
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.stage_layers import rank_layers, stage_layers
from pybench.model.workloads.stage_memory import LOSS_BYTES, rank_bytes
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_strategies import STRATEGIES

ESTIMATE_ERROR = 0.1
"""Kept runs lie within so much of the estimate: what exceeds the memory by no more may fit."""
# For each logit, when its gradient is made, by one compiled kernel, which keeps float32 in registers.
_FUSED_LOSS_BYTES = 4
# Both states of AdamW in eight bits. What the driver pages leaves the GPU where that has no room.
_8_BIT_STATES = 2
_FLOAT32 = 4


def train_bytes(settings: Train, shape: DecoderShape, *, whole_logits: bool = False) -> float:
    """Weights, gradients, the optimizer's states, activations and logits of a step, without libraries' workspaces.

    Or what decoding in an evaluation needs, where that is more. With ``whole_logits`` every rank makes all of them, as
    for a turn's policy.
    """
    step = _step_bytes(settings, shape, whole_logits=whole_logits) + _control_bytes(settings, shape)
    return max(step, _decoding_bytes(settings, shape))


def host_bytes(settings: Train, shape: DecoderShape) -> float:
    """Memory that all hosts together have weights and states in, where they are kept there; else 0.

    ZeRO-Offload (arXiv:2101.06840): weight, gradient and two states of AdamW in float32 of each weight that is trained,
    and ``dtype``'s weights with ``offload_parameters``. FSDP: weights, gradients and states in ``dtype``, and frozen
    weights as they are stored; with ``hybrid_shard`` every host has all of it.
    """
    number, weights = DTYPE_BYTES[settings.dtype], num_parameters(shape)
    adapters = adapter_parameters(shape, settings)
    trained, frozen = (weights, 0) if adapters is None else (adapters, weights)
    states = (LASTING_BYTES + _FLOAT32) * trained if settings.offload_optimizer else 0.0
    if settings.offload_parameters:
        states += number * weights
    if settings.cpu_offload:
        copies = settings.nodes if settings.hybrid_shard else 1
        held = stored_bytes(settings, shape) if frozen else 0.0
        states += copies * ((2 * number + _state_bytes(settings)) * trained + held)
    return float(states)


def _decoding_bytes(settings: Train, shape: DecoderShape) -> float:
    """The least of an evaluation that decodes: weights, states, and each beam's keys and values; else 0."""
    if settings.evaluation_method != "generation":
        return 0.0
    samples = 1 if settings.finds_batch_size else settings.micro_batch_size
    cached = samples * (settings.evaluation_beams or 1) * cached_numbers(shape, settings.sequence_tokens)
    held = _gathered_bytes(settings, shape) + DTYPE_BYTES[settings.computing_dtype] * cached
    weights = held_parameters(settings, shape)
    if settings.cpu_offload:
        return held
    if settings.lora_rank:
        return held + _frozen_bytes(settings, shape, weights)
    return held + (DTYPE_BYTES[settings.dtype] + _state_bytes(settings)) * weights


def _step_bytes(settings: Train, shape: DecoderShape, *, whole_logits: bool) -> float:
    if STRATEGIES[settings.strategy].has_stages:
        return max(rank_bytes(settings, shape, rank_layers(stage_layers(settings, shape), settings.pipeline_parallel)))
    number, tokens = DTYPE_BYTES[settings.dtype], _tokens(settings)
    weights = held_parameters(settings, shape)
    logits = float(min(tokens, settings.loss_chunk_tokens or tokens) * shape.vocabulary)
    kept = tokens * kept_bytes(settings, shape)
    # FSDP has the head gathered, and the embedding with it, when the loss is made, and two layers in one's backward.
    loss = _loss_bytes(settings, logits, whole=whole_logits) + _gathered_bytes(settings, shape)
    again = tokens * recomputed_bytes(settings, shape)
    again += _gathered_bytes(settings, shape, num_layers=min(2, shape.layers)) + _whole_gradient_bytes(settings, shape)
    at_most = kept + max(loss, again)
    held_back = held_back_bytes(settings, shape)
    if settings.cpu_offload:
        return at_most + held_back
    if settings.lora_rank:
        return _frozen_bytes(settings, shape, weights) + _adapter_bytes(settings, shape, weights) + at_most
    if settings.strategy == "deepspeed":
        return zero_bytes(settings, weights, at_most)
    lasting, gradients = (number + _state_bytes(settings)) * weights, number * weights
    if _has_buckets(settings) and settings.comm_hook == "powersgd":
        lasting += gradients  # what the factors leave out is added to the next gradients (arXiv:1905.13727)
    if _has_buckets(settings) and settings.gradient_as_bucket_view:
        return lasting + gradients + at_most
    if _has_buckets(settings):
        lasting += gradients  # the buckets stay while gradients come and go
    # In the first layer, last of backward's, every gradient is there but the embedding's.
    in_first_layer = gradients + again - number * shape.embedding_weights * weights / num_parameters(shape)
    # In a lone pass gradients come as what is kept goes.
    passing = (held_back or gradients) + at_most if settings.accumulates else max(gradients, at_most)
    return lasting + max(in_first_layer, passing)


def _state_bytes(settings: Train) -> float:
    """Of the optimizer, for each weight, on the GPU."""
    of_adamw = 2 * DTYPE_BYTES[settings.dtype]
    return {"sgd": 0, "adamw_8bit": _8_BIT_STATES, "paged_adamw": 0, "paged_adamw_8bit": 0}.get(
        settings.optimizer or "adamw", of_adamw
    )


def held_back_bytes(settings: Train, shape: DecoderShape) -> float:
    """Gradients that FSDP holds back, of whole weights, until the last of a step's passes splits them; else 0."""
    if settings.strategy != "fsdp" or settings.lora_rank or not settings.accumulates:
        return 0.0
    # With mixed precision they are added up in the type that they are reduced in.
    number = _FLOAT32 if settings.mixed_precision else DTYPE_BYTES[settings.dtype]
    return number * _of_tensor_rank(settings, shape, num_parameters(shape))


def _loss_bytes(settings: Train, logits: float, *, whole: bool) -> float:
    """Of so many logits and their gradients. Unsloth's own loss makes no logits, unless all are needed (``whole``).

    Of a vocabulary that is split, a rank has its part, whose gradients take the place of probabilities in float32.
    """
    if settings.strategy == "unsloth" and not whole:
        return 0.0
    if settings.splits_vocabulary and not whole:
        return (DTYPE_BYTES[settings.computing_dtype] + _FLOAT32) * logits / settings.tensor_parallel
    return (_FUSED_LOSS_BYTES if settings.compile else LOSS_BYTES) * logits


def _gathered_bytes(settings: Train, shape: DecoderShape, num_layers: int = 0) -> float:
    """What FSDP and ZeRO 3 gather beside their parts: embedding and head, for the whole step, and so many layers.

    All layers where they stay whole from forward to backward.
    """
    by_zero = settings.zero_stage == 3 and settings.data_parallel > 1  # noqa: PLR2004 - stages have numbers
    if not by_zero and not _is_fully_sharded(settings):
        return 0.0
    number = DTYPE_BYTES[settings.computing_dtype]
    if settings.reshard_after_forward is False:
        num_layers = shape.layers
    share = num_layers / shape.layers
    if settings.weights == "nf4":
        packed = stored_bytes(settings, shape) - DTYPE_BYTES[settings.dtype] * shape.end_weights
        return number * _of_tensor_rank(settings, shape, shape.end_weights) + packed * share
    layers = (num_parameters(shape) - shape.end_weights) * share
    return number * _of_tensor_rank(settings, shape, shape.end_weights + layers)


def _whole_gradient_bytes(settings: Train, shape: DecoderShape) -> float:
    """Of one layer's gradients before FSDP splits them, and of the copy that it reduces.

    ``fully_shard`` lays them in one piece. Gradients that are held back are counted with the others.
    """
    if settings.lora_rank or not _is_fully_sharded(settings):
        return 0.0
    copied = _FLOAT32 if settings.mixed_precision else DTYPE_BYTES[settings.dtype]
    made = 0 if held_back_bytes(settings, shape) else DTYPE_BYTES[settings.computing_dtype]
    layer = (num_parameters(shape) - shape.end_weights) / shape.layers
    return (made + copied) * layer / settings.tensor_parallel


def _is_fully_sharded(settings: Train) -> bool:
    """Whether ``fully_shard`` gathers and reduces. One rank alone has copies, too, but torchtune's."""
    alone = settings.strategy == "torchtune" and settings.data_parallel == 1
    return STRATEGIES[settings.strategy].fully_shards and not alone


def _tokens(settings: Train) -> int:
    """Of one pass of a rank; where a batch size is to be found, of one sample."""
    samples = 1 if settings.finds_batch_size else settings.micro_batch_size
    return samples * settings.sequence_tokens // settings.context_parallel


def _has_buckets(settings: Train) -> bool:
    """Whether DDP averages gradients, in buckets beside them."""
    averaged = settings.data_parallel * settings.context_parallel > 1
    return averaged and STRATEGIES[settings.strategy].has_buckets


def held_parameters(settings: Train, shape: DecoderShape) -> float:
    """Parameters of the model that one rank holds, of a strategy without stages."""
    of_rank = _of_tensor_rank(settings, shape, num_parameters(shape))
    if STRATEGIES[settings.strategy].fully_shards:
        return of_rank / (settings.num_shards * settings.context_parallel)
    return of_rank


def _of_tensor_rank(settings: Train, shape: DecoderShape, parameters: float) -> float:
    """Of ``parameters``, among them the embedding's, those of a tensor-parallel rank.

    Without ``sequence_parallel`` each has the whole embedding; torchtune always splits it.
    """
    split = bool(settings.sequence_parallel) or settings.strategy == "torchtune"
    whole = 0.0 if split else shape.embedding_weights
    return whole + (parameters - whole) / settings.tensor_parallel


def _adapter_bytes(settings: Train, shape: DecoderShape, weights: float) -> float:
    """Of adapters of a rank that holds so many weights: themselves, their gradients, states and DDP's buckets."""
    number = DTYPE_BYTES[settings.dtype]
    each = 2.0 * number + _state_bytes(settings)
    if settings.strategy == "deepspeed":
        each = 2.0 * HALF_BYTES + (0.0 if settings.offload_optimizer else LASTING_BYTES / settings.data_parallel)
    if _has_buckets(settings) and not settings.gradient_as_bucket_view:
        each += number
    return each * (adapter_parameters(shape, settings) or 0) * weights / num_parameters(shape)


def _frozen_bytes(settings: Train, shape: DecoderShape, weights: float) -> float:
    """Of weights under adapters."""
    if settings.offload_parameters:
        return 0.0
    split = settings.data_parallel if settings.strategy == "deepspeed" and settings.zero_stage == 3 else 1  # noqa: PLR2004
    return stored_bytes(settings, shape) * weights / num_parameters(shape) / split


def _control_bytes(settings: Train, shape: DecoderShape) -> float:
    """What FSDP holds besides in control steps: all weights, and the gradients of those that are trained.

    Where a step has several passes, it holds those gradients in any case.
    """
    if not STRATEGIES[settings.strategy].fully_shards or not settings.has_control_steps:
        return 0.0
    if settings.lora_rank:
        everything = _frozen_bytes(settings, shape, num_parameters(shape))
    else:
        whole = float(DTYPE_BYTES[settings.dtype] * num_parameters(shape))
        everything = whole if held_back_bytes(settings, shape) else 2 * whole
    return everything - _gathered_bytes(settings, shape)
