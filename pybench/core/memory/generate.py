"""Memory that generation takes at least on the GPU that holds most, and what vLLM leaves for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pybench.core.feasibility.number_types import has_type
from pybench.core.flops import cached_numbers, num_parameters
from pybench.core.memory.changes import first_that_fit
from pybench.core.memory.weights import packed_bytes
from pybench.model.decoder_shape import DecoderShape
from pybench.model.devices import Devices
from pybench.model.memory_text import amount_text
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import DTYPE_BYTES

_DEGREES = (2, 4, 8)
# A change is named where it also leaves room for what is not counted: activations and workspaces.
_REMEDY_SHARE = 0.9
LARGEST_SHARE = 0.9
"""Shares of the memory above this leave too little for what CUDA and other processes have there."""


def generate_bytes(settings: Generate, shape: DecoderShape) -> float:
    """An even part of the weights, and of the cache of one sequence at its longest."""
    whole = _weight_bytes(settings, shape) + _cache_bytes(settings, shape)
    return whole / (settings.tensor_parallel * settings.pipeline_parallel)


def vllm_reason(settings: Generate, shape: DecoderShape, memory_bytes: float, there: Devices) -> str | None:
    """Why vLLM would find no room for a cache on GPUs of ``memory_bytes``, with what to change; ``None`` if it may.

    Weights, activations and cache share ``gpu_memory_utilization`` of a GPU's memory, and the cache must hold one
    sequence at its longest (``vllm/v1/core/kv_cache_utils.py``). Activations are not counted. Arguments of the engine
    may put weights or cache elsewhere: with any, nothing is refused here.
    """
    if settings.backend != "vllm" or settings.engine_args or _fits(settings, shape, memory_bytes):
        return None
    share = settings.gpu_memory_utilization
    least = f"at least {amount_text(generate_bytes(settings, shape))} a GPU"
    found = f"of {amount_text(share * memory_bytes)} (gpu_memory_utilization {share:g} of {amount_text(memory_bytes)})"
    room = _REMEDY_SHARE * memory_bytes
    changes = first_that_fit(_changes(settings, shape, there), lambda other: _fits(other, shape, room))
    remedy = " or ".join((*changes, "a smaller model"))
    return f"needs {least} for weights and the cache of a sequence, {found}: fits with {remedy}"


def _fits(settings: Generate, shape: DecoderShape, memory_bytes: float) -> bool:
    return generate_bytes(settings, shape) <= settings.gpu_memory_utilization * memory_bytes


def _changes(settings: Generate, shape: DecoderShape, there: Devices) -> Iterator[tuple[str, str, Generate]]:
    """Single changes of the settings that vLLM takes for the model, on the GPUs that are there."""
    if settings.context_tokens > settings.longest_sequence_tokens:
        needed = settings.longest_sequence_tokens
        yield "max_context_tokens", f"{needed}", replace(settings, max_context_tokens=needed)
    if settings.gpu_memory_utilization < LARGEST_SHARE:
        share = LARGEST_SHARE
        yield "gpu_memory_utilization", f"{share:g}", replace(settings, gpu_memory_utilization=share)
    if settings.quantization != "bitsandbytes":
        split = (shape.heads, shape.key_value_heads, shape.hidden, shape.intermediate)
        for degree in _DEGREES:
            if degree > settings.tensor_parallel and not any(size % degree for size in split):
                yield "tensor_parallel", f"{degree}", replace(settings, tensor_parallel=degree)
    if settings.quantization is None and shape.num_experts == 1:
        if has_type("fp8", there):
            yield "quantization", "'fp8'", replace(settings, quantization="fp8")
        if settings.tensor_parallel == 1:
            yield "quantization", "'bitsandbytes'", replace(settings, quantization="bitsandbytes")


def _weight_bytes(settings: Generate, shape: DecoderShape) -> float:
    if settings.quantization == "bitsandbytes":
        return packed_bytes(shape, settings.dtype, double=False)
    # vLLM's fp8 leaves embedding and head as they are.
    ends = shape.end_weights
    return DTYPE_BYTES[settings.dtype] * ends + DTYPE_BYTES[settings.computing_type] * (num_parameters(shape) - ends)


def _cache_bytes(settings: Generate, shape: DecoderShape) -> float:
    return DTYPE_BYTES[settings.dtype] * cached_numbers(shape, settings.context_tokens)
