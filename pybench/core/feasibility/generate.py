"""Limits of a backend in generation, and in evaluation by generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.core.flops import num_parameters
from pybench.model.backend import BACKENDS
from pybench.model.decoder_shape import DecoderShape
from pybench.model.devices import DeviceKind
from pybench.model.memory_text import amount_text
from pybench.model.plural import listed
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.placement import placement_reasons
from pybench.model.workloads.settings import DTYPE_BYTES, PARALLEL_AXES, Settings, defaults

# Options that some backends lack.
_OPTIONS = {option for traits in BACKENDS.values() for option in traits.options}


def option_reasons(settings: Settings) -> Iterator[str]:
    """Every optional setting that the backend has no way to honour."""
    for name, default in defaults(type(settings)).items():
        if name in _OPTIONS - {*BACKENDS[settings.backend].options} and getattr(settings, name) != default:
            able = listed(other for other, traits in BACKENDS.items() if name in traits.options)
            yield f"backend {settings.backend} has no {name}, only {able}"


def generate_reasons(settings: Generate, device: DeviceKind) -> Iterator[str]:
    """Every setting that the backend can't honour here."""
    traits = BACKENDS[settings.backend]
    yield from option_reasons(settings)
    if settings.quantization and traits.quantizations and settings.quantization not in traits.quantizations:
        able = ", ".join(traits.quantizations)
        yield f"backend {settings.backend} has no quantization {settings.quantization!r}, only {able}"
    if settings.quantization == "bitsandbytes" and settings.tensor_parallel > 1:
        yield "quantization 'bitsandbytes' packs whole weights, which tensor_parallel would split"
    yield from _of_requests(settings)
    if settings.nodes % settings.data_parallel and settings.data_parallel % settings.nodes:
        yield (
            f"data_parallel {settings.data_parallel} can't be spread over {settings.nodes} nodes: give each node whole "
            "replicas, or each replica whole nodes"
        )
    above_one = [axis for axis in PARALLEL_AXES if getattr(settings, axis) > 1]
    for axis in above_one:
        others = [other for other in above_one if other != axis]
        if axis in traits.lone_axes and others:
            yield f"backend {settings.backend} has {axis} alone, not with {others[0]}"
        if axis in traits.gpu_axes and device == "cpu":
            yield f"backend {settings.backend} has {axis} above 1 on GPUs only"


def spread_reasons(settings: Generate, shape: DecoderShape) -> Iterator[str]:
    """Why the layers can't lie where ``device_map`` has them, or within ``max_memory``."""
    table, limits, stages = settings.device_map, settings.max_memory, settings.pipeline_parallel
    for name in [name for name, given in (("device_map", isinstance(table, dict)), ("max_memory", limits)) if given]:
        if stages == 1:
            yield f"{name} spreads layers over GPUs: give pipeline_parallel above 1"
    if isinstance(table, dict) and stages > 1:
        yield from placement_reasons(table, stages, shape.layers, tied=shape.tied_embeddings)
    if limits is not None and settings.quantization:
        yield "max_memory counts weights as they are: remove quantization, or place layers by a table as device_map"
    elif limits is not None and stages > 1:
        weight_bytes = DTYPE_BYTES[settings.dtype] * num_parameters(shape)
        yield from _limit_reasons(limits, stages, weight_bytes)


def _limit_reasons(limits: Mapping[str, int], num_gpus: int, weight_bytes: float) -> Iterator[str]:
    """Why weights of ``weight_bytes`` can't lie on ``num_gpus`` GPUs within ``limits``."""
    found, wanted = {int(gpu) for gpu in limits}, set(range(num_gpus))
    if found != wanted:
        numbers = ", ".join(map(str, sorted(found ^ wanted)))
        yield f"max_memory and pipeline_parallel {num_gpus} differ in GPU {numbers}: give 0 to {num_gpus - 1}"
    elif sum(limits.values()) < weight_bytes:
        yield f"max_memory has {amount_text(sum(limits.values()))} for weights of {amount_text(weight_bytes)}"


def _of_requests(settings: Generate) -> Iterator[str]:
    shortest = settings.shortest(settings.prompt_tokens)
    if (settings.shared_prefix_tokens or 0) > shortest:
        yield f"shared_prefix_tokens {settings.shared_prefix_tokens} is more than the shortest prompt has: {shortest}"
    if settings.context_tokens < settings.longest_sequence_tokens:
        longest = settings.longest_sequence_tokens
        yield f"max_context_tokens {settings.max_context_tokens} is less than the longest prompt and output: {longest}"
    if settings.concurrency is not None and settings.concurrency % settings.data_parallel:
        yield f"concurrency {settings.concurrency} can't be split over data_parallel {settings.data_parallel}"
