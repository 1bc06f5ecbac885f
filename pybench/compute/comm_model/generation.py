"""Offline batch generation, split over tensor- and pipeline-parallel ranks.

Tensor parallel after Megatron-LM (arXiv:1909.08053): two all-reduces of the activations in every layer, and a gather of
the logits. A pipeline holds one batch: its stages work one after the other, and each hands its activations on.
"""

from __future__ import annotations

from dataclasses import dataclass

from pybench.compute.comm_model.figures import NodeFigures
from pybench.compute.comm_model.step_time import StepTime, roofline
from pybench.compute.flops import forward_flops_per_token, num_parameters
from pybench.model.suite import Architecture

_REDUCTIONS_PER_LAYER = 2


@dataclass(frozen=True, kw_only=True)
class GenerationShape:
    """Sequences, tokens and bytes of an element; ``samples`` are those of one data-parallel copy."""

    samples: int
    prompt_tokens: int
    output_tokens: int
    element_bytes: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1


def generation_step(figures: NodeFigures, architecture: Architecture, shape: GenerationShape) -> StepTime:
    """Prefill, then a round for each further output token at the mean context. Raises ``UnmeasuredError``."""
    context = shape.prompt_tokens + shape.output_tokens / 2
    decode = _pass(figures, architecture, shape, tokens=1, context=context)
    prefill = _pass(figures, architecture, shape, tokens=shape.prompt_tokens, context=shape.prompt_tokens / 2)
    return prefill + decode.times(shape.output_tokens - 1)


def prefill_step(figures: NodeFigures, architecture: Architecture, shape: GenerationShape) -> StepTime:
    """The prompts' pass alone."""
    return _pass(figures, architecture, shape, tokens=shape.prompt_tokens, context=shape.prompt_tokens / 2)


def _pass(
    figures: NodeFigures, architecture: Architecture, shape: GenerationShape, *, tokens: int, context: float
) -> StepTime:
    """One forward pass of ``tokens`` new tokens a sequence; only the last one's logits are computed."""
    hidden, vocabulary = architecture["hidden_size"], architecture["vocab_size"]
    head_flops = 2 * vocabulary * hidden
    layer_flops = tokens * (forward_flops_per_token(architecture, context) - head_flops)
    flops = shape.samples * (layer_flops + head_flops)
    read = _weight_bytes(architecture, shape) + shape.samples * context * _cache_bytes_per_token(architecture, shape)
    degree = shape.tensor_parallel
    activations = shape.samples * tokens * hidden * shape.element_bytes
    reductions = _REDUCTIONS_PER_LAYER * architecture["num_hidden_layers"]
    communication_s = (
        reductions * figures.collective_s("all_reduce", activations, degree)
        + figures.collective_s("all_gather", shape.samples * vocabulary * shape.element_bytes, degree)
        + (figures.send_s(activations) * (shape.pipeline_parallel - 1) if shape.pipeline_parallel > 1 else 0.0)
    )
    return roofline(figures, flops / degree, read / degree) + StepTime(communication_s=communication_s)


def _weight_bytes(architecture: Architecture, shape: GenerationShape) -> float:
    """Every weight but the embedding, of which a pass reads some rows."""
    embedding = architecture["vocab_size"] * architecture["hidden_size"]
    unread = 0 if architecture.get("tie_word_embeddings", False) else embedding
    return float((num_parameters(architecture) - unread) * shape.element_bytes)


def _cache_bytes_per_token(architecture: Architecture, shape: GenerationShape) -> float:
    """Keys and values of every layer."""
    heads = architecture["num_attention_heads"]
    width = architecture.get("head_dim") or architecture["hidden_size"] // heads
    cached = 2 * architecture["num_hidden_layers"] * architecture["num_key_value_heads"] * width
    return float(cached * shape.element_bytes)
