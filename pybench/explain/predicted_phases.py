"""The predicted phases of a point's step, from its settings and a node's figures."""

from __future__ import annotations

from dataclasses import replace

from pybench.core.adapters import adapted_sides, adapter_parameters
from pybench.core.memory.weights import stored_bytes
from pybench.explain.comm_model.adapters import adapter_products, around_adapters
from pybench.explain.comm_model.experts import plain_experts
from pybench.explain.comm_model.figures import NodeFigures
from pybench.explain.comm_model.generation import GenerationShape, generation_phases
from pybench.explain.comm_model.inner import fused_inner, gathered_keys, plain_inner
from pybench.explain.comm_model.layer_bytes import LayerBytes
from pybench.explain.comm_model.norms import fused_norms, plain_norms
from pybench.explain.comm_model.step_time import StepTime
from pybench.explain.comm_model.training import training_step
from pybench.explain.comm_model.training_shape import BUCKET_BYTES, TrainingShape
from pybench.explain.unknown_work import refuse_unknown
from pybench.model.backend import BACKENDS
from pybench.model.decoder_shape import DecoderShape
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import AUTO, DTYPE_BYTES, ModelSettings
from pybench.model.workloads.stage_layers import rank_layers, stage_layers
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_strategies import STRATEGIES

# The one that needs least fabric first.
_DEGREES = ("data_parallel", "pipeline_parallel", "context_parallel", "tensor_parallel")


def predicted_phases(figures: NodeFigures, point: Point, samples: float, *, grown: int = 1) -> tuple[StepTime, ...]:
    """The phases of ``point``'s step with ``samples`` in it, its parallel degree multiplied by ``grown``.

    Generation has two, prefill and all decode rounds; training has one. Raises ``UnmeasuredError`` when the node's run
    lacks a figure, or the model does not know the point's kind of work.
    """
    refuse_unknown(point)
    settings, decoder = point.settings, point.shape
    assert decoder is not None, "a model without a shape was refused"
    if isinstance(settings, Generate):
        shape, waves = generation_shape(settings, decoder, samples, grown)
        return tuple(phase.times(waves) for phase in generation_phases(figures, decoder, shape))
    assert isinstance(settings, Train), "other work was refused"
    return (training_step(figures, decoder, _training(settings, decoder, samples, grown)),)


def raised_degree(settings: ModelSettings) -> str:
    """The parallel degree that more GPUs would raise: the highest, and of equals the one that needs least fabric."""
    return max(_DEGREES, key=lambda name: int(getattr(settings, name)))


def _degrees(settings: ModelSettings, grown: int) -> dict[str, int]:
    degrees = {name: int(getattr(settings, name)) for name in _DEGREES}
    raised = raised_degree(settings)
    return {**degrees, raised: degrees[raised] * grown}


def generation_shape(
    settings: Generate, decoder: DecoderShape, samples: float, grown: int
) -> tuple[GenerationShape, float]:
    """One wave of a replica, which runs as many sequences at a time as it may, and how many waves it has."""
    degrees = _degrees(settings, grown)
    share = max(1, round(samples / degrees["data_parallel"]))
    at_once = min(share, settings.max_num_seqs or share)
    shape = GenerationShape(
        samples=at_once,
        prompt_tokens=settings.prompt_tokens,
        output_tokens=settings.output_tokens,
        element_bytes=DTYPE_BYTES[settings.dtype],
        tensor_parallel=degrees["tensor_parallel"],
        pipeline_parallel=degrees["pipeline_parallel"],
        norms=_norms(settings, decoder, fused=BACKENDS[settings.backend].fuses_norms),
    )
    return shape, share / at_once


def _training(settings: Train, decoder: DecoderShape, samples: float, grown: int) -> TrainingShape:
    strategy = STRATEGIES[settings.strategy]
    assert strategy.sharing is not None, "other strategies were refused"
    degrees = _degrees(settings, grown)
    of_rank, packed = samples / degrees["data_parallel"], settings.weights == "nf4"
    passes = _passes(settings, of_rank)
    grown_settings = replace(settings, pipeline_parallel=degrees["pipeline_parallel"])
    return TrainingShape(
        samples=of_rank,
        sequence_tokens=settings.sequence_tokens,
        element_bytes=DTYPE_BYTES[settings.dtype],
        sharing=strategy.sharing,
        data_parallel=degrees["data_parallel"],
        tensor_parallel=degrees["tensor_parallel"],
        context_parallel=degrees["context_parallel"],
        pipeline_parallel=degrees["pipeline_parallel"],
        microbatches=grown_settings.num_microbatches,
        stages_per_rank=settings.stages_per_rank or 1,
        layers_of_ranks=rank_layers(stage_layers(grown_settings, decoder), degrees["pipeline_parallel"]),
        passes=passes,
        bucket_bytes=settings.bucket_cap_mb * 2**20 if settings.bucket_cap_mb else BUCKET_BYTES,
        bucket_copies=_bucket_copies(settings),
        recompute=settings.activation_checkpointing == "full",
        recompute_between=settings.activation_checkpointing == "selective",
        loss_in_chunks=settings.loss_chunk_tokens is not None,
        fused_loss=bool(settings.compile),
        fused_update=settings.fused_adamw,
        adapters=adapter_parameters(decoder, settings),
        adapter_products=_adapter_products(settings, decoder),
        stored_bytes=stored_bytes(settings, decoder) if packed else None,
        unpacked_bytes=_unpacked_bytes(settings, decoder) if packed else 0.0,
        clip=settings.max_grad_norm is not None,
        norms=_norms(settings, decoder, fused=bool(settings.compile)),
        inner=_inner(settings, decoder, degrees["context_parallel"], of_rank / passes),
        split_tokens=bool(settings.sequence_parallel),
    )


def _norms(settings: ModelSettings, decoder: DecoderShape, *, fused: bool) -> LayerBytes:
    number = DTYPE_BYTES[settings.dtype]
    if fused:
        return fused_norms(number, decoder.model_type)
    return plain_norms(number, decoder.model_type, trained=_trains_all(settings))


def _inner(settings: Train, decoder: DecoderShape, chunks: int, samples: float) -> LayerBytes:
    """``samples`` are those of a pass on one rank."""
    number, trained = DTYPE_BYTES[settings.dtype], _trains_all(settings)
    inner = fused_inner(decoder, number) if settings.compile else plain_inner(decoder, number, trained=trained)
    if decoder.num_experts > 1:
        inner += plain_experts(decoder, number, trained=trained)
    if chunks > 1:
        inner += gathered_keys(decoder, number, chunks, in_order=samples <= 1)
    return inner if trained else inner + _around_adapters(settings, decoder)


def _trains_all(settings: ModelSettings) -> bool:
    return isinstance(settings, Train) and settings.lora_rank is None


def _adapter_products(settings: Train, decoder: DecoderShape) -> LayerBytes | None:
    if settings.lora_rank is None:
        return None
    return adapter_products(adapted_sides(decoder, settings), settings.lora_rank, DTYPE_BYTES[settings.dtype])


def _around_adapters(settings: Train, decoder: DecoderShape) -> LayerBytes:
    return around_adapters(
        adapted_sides(decoder, settings),
        DTYPE_BYTES[settings.dtype],
        fused=bool(settings.compile),
        packed=settings.weights == "nf4",
        dropped=bool(settings.lora_dropout),
    )


def _unpacked_bytes(settings: Train, decoder: DecoderShape) -> float:
    """Of all layers' weights once: what is read in four bits, and written in the type that computes."""
    ends = DTYPE_BYTES[settings.dtype] * decoder.end_weights
    return stored_bytes(settings, decoder) - ends + DTYPE_BYTES[settings.dtype] * decoder.layer_weights * decoder.layers


def _bucket_copies(settings: Train) -> int:
    """DDP's, of each gradient; none where gradients stay in their buckets from pass to pass."""
    if not settings.gradient_as_bucket_view:
        return 2
    return 0 if settings.accumulates else 1


def _passes(settings: Train, of_rank: float) -> int:
    """As many as a rank's samples need; where they are set, they stay on any number of GPUs."""
    if settings.grad_accum != AUTO:
        return int(settings.grad_accum)
    return max(1, round(of_rank / settings.micro_batch_size))
