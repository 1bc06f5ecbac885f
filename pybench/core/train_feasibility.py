"""Why a training point can't run: its strategy, its batch or its device."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.model.decoder_shape import DecoderShape
from pybench.model.machine import DeviceKind
from pybench.model.text import listed, plural
from pybench.model.workloads.settings import AUTO, PARALLEL_AXES
from pybench.model.workloads.train import Train, deepspeed_conflicts, fill_rounds
from pybench.model.workloads.train_rules import GPU_ONLY, STRATEGIES
from pybench.model.workloads.traits import Reason


def train_reasons(settings: Train, shape: DecoderShape, device: DeviceKind) -> Iterator[Reason]:
    """Every reason why the point can't run."""
    name, strategy = f"strategy {settings.strategy}", STRATEGIES[settings.strategy]
    able, families = strategy.parallel_axes, strategy.model_types
    for axis in PARALLEL_AXES:
        if getattr(settings, axis) > 1 and axis not in able:
            yield "unsupported", f"{name} has no {axis} above 1, only {listed(able)}"
    if device == "cpu":
        yield from (("device", f"{option} needs GPUs") for option in GPU_ONLY if getattr(settings, option))
        if settings.finds_batch_size:
            yield "device", f"batch_size_per_gpu = {AUTO!r} needs a GPU's memory limit: give a number"
    if families is not None and shape.model_type not in families:
        yield "unsupported", f"{name} has models of type {listed(families)} only, not {shape.model_type}"
    yield from _library_reasons(settings, shape)
    yield from split_reasons(settings, shape)
    if not (settings.global_batch_size or 0) % settings.data_parallel:  # else the workload's own check reports it
        uneven = list(pass_reasons(settings))
        yield from uneven if uneven or settings.finds_batch_size else _microbatches(settings)
    yield from deepspeed_conflicts(settings)


def _library_reasons(settings: Train, shape: DecoderShape) -> Iterator[Reason]:
    """Settings that peft, bitsandbytes or torchtune would leave out in part."""
    model, experts = settings.model, shape.num_experts > 1
    # The experts of a layer are one weight: no linear layer that peft adapts or bitsandbytes packs.
    if experts and settings.lora_targets == "all_linear":
        yield "unsupported", f"lora_targets = 'all_linear': {model} has experts, which get no adapters; use 'attention'"
    if experts and settings.weights == "nf4":
        yield "unsupported", f"weights = 'nf4' packs linear layers, and the experts of {model} are none; use 'dtype'"
    # One projection makes queries, keys and values: an adapter is for all three.
    if shape.model_type == "phi3" and settings.lora_rank and settings.lora_targets in {None, "query_value"}:
        fault = f"lora_targets = 'query_value': {model} has them in one projection with keys"
        yield "unsupported", f"{fault}; use 'attention'"
    is_tuned, recomputed = settings.strategy == "torchtune", settings.activation_checkpointing == "full"
    if is_tuned and settings.activation_offload and not recomputed:
        fault = "torchtune's recipes offload what recomputed layers keep"
        yield "settings", f"{fault}: set activation_checkpointing = 'full'"
    if is_tuned and settings.cpu_offload and settings.data_parallel == 1:
        fault = "torchtune leaves to host memory what FSDP splits"
        yield "settings", f"{fault}: take data_parallel of 2 or more, or remove cpu_offload"


def split_reasons(settings: Train, shape: DecoderShape) -> Iterator[Reason]:
    """Why layers, sequences or weights can't be split as the settings have it."""
    layers, length, split = shape.layers, settings.sequence_tokens, "can't be split over"
    stages = settings.pipeline_parallel * (settings.stages_per_rank or 1)
    if layers < stages and settings.stages_per_rank:
        yield "uneven", f"{layers} layers of {settings.model} are fewer than {stages} stages"
    if settings.context_parallel > 1 and settings.tensor_parallel > 1:
        yield "settings", "layers split over tensor_parallel don't attend over context_parallel: give one of them"
    if settings.strategy == "fsdp" and settings.tensor_parallel > 1 and settings.lora_rank:
        yield "unsupported", "layers with adapters can't be split over tensor_parallel: use data_parallel"
    if length % settings.context_parallel:
        yield "uneven", f"{length} tokens in a sequence {split} context_parallel {settings.context_parallel}"
    if settings.sequence_parallel and length % settings.tensor_parallel:
        yield "uneven", f"{length} tokens in a sequence {split} tensor_parallel {settings.tensor_parallel}"
    if settings.hybrid_shard and settings.data_parallel % settings.nodes:
        yield "uneven", f"data_parallel {settings.data_parallel} {split} {settings.nodes} nodes (hybrid_shard)"
    splits_ends = stages > 1 or settings.tensor_parallel > 1 or STRATEGIES[settings.strategy].untied_head
    if splits_ends and shape.tied_embeddings:
        ties = f"{settings.model} ties its head to its embedding, which {settings.strategy} would split"
        yield "unsupported", f"{ties}: take a model with a head of its own"


def pass_reasons(settings: Train) -> Iterator[Reason]:
    """Why a rank's share of a global batch, which is whole, can't be split over the passes of a step."""
    whole, passes = settings.global_batch_size, settings.grad_accum
    if whole is None or settings.finds_batch_size:
        return
    if settings.batch_size_per_gpu is None:
        share = whole // settings.data_parallel
        if share % int(passes):
            yield "uneven", f"{plural(share, 'sample')} of a rank can't be split over grad_accum {passes}"
    elif passes == AUTO:
        at_once = settings.micro_batch_size * settings.data_parallel
        if whole % at_once:
            yield "uneven", f"{whole} samples in a step are no multiple of the {at_once} that all ranks take at once"


def _microbatches(settings: Train) -> Iterator[Reason]:
    """What torch's schedules refuse only once the stages are made."""
    parts, stages = settings.num_microbatches, settings.pipeline_parallel
    if (samples := settings.micro_batch_size) % parts:
        yield "uneven", f"{plural(samples, 'sample')} of a rank can't be split over {parts} microbatches"
    if not STRATEGIES[settings.strategy].has_microbatches:
        return
    if settings.schedule in {None, "1f1b"} and parts < stages:
        needs = f"needs a microbatch for each of {stages} stages, and there are {parts}"
        yield "uneven", f"schedule 1f1b {needs}: gpipe takes fewer"
    if settings.schedule == "interleaved_1f1b" and not fill_rounds(parts, stages):
        takes = f"{parts} microbatches in {parts // stages} rounds of {stages} or more"
        yield "uneven", f"interleaved_1f1b can't take {takes}: set microbatches"
