"""Offline batch generation, split over tensor- and pipeline-parallel ranks.

Tensor parallel after Megatron-LM (arXiv:1909.08053): two all-reduces of the activations in every layer, and a gather of
the logits. A pipeline holds one batch: its stages work one after the other, and each hands its activations on.
"""

from __future__ import annotations

from dataclasses import dataclass

from pybench.compute.comm_model.figures import NodeFigures
from pybench.compute.comm_model.step_time import StepTime, roofline
from pybench.compute.flops import cached_numbers, forward_flops_per_token, head_flops_per_token, read_weights
from pybench.model.decoder_shape import DecoderShape

_REDUCTIONS_PER_LAYER = 2


@dataclass(frozen=True, kw_only=True)
class GenerationShape:
    """Sequences, tokens and bytes of an element; ``samples`` are those of one replica."""

    samples: int
    prompt_tokens: int
    output_tokens: int
    element_bytes: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1


def generation_step(figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape) -> StepTime:
    """Prefill, then a round for each further output token at the mean context. Raises ``UnmeasuredError``."""
    rounds = decode_round(figures, decoder, shape).times(shape.output_tokens - 1)
    return prefill_step(figures, decoder, shape) + rounds


def decode_round(figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape) -> StepTime:
    """One more token of every sequence, at the mean context. Raises ``UnmeasuredError``."""
    contexts = (shape.prompt_tokens, shape.prompt_tokens + shape.output_tokens)
    return _pass(figures, decoder, shape, tokens=1, contexts=contexts)


def prefill_step(figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape) -> StepTime:
    """The prompts' pass alone."""
    return _pass(figures, decoder, shape, tokens=shape.prompt_tokens, contexts=(0, shape.prompt_tokens))


def _pass(
    figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape, *, tokens: int, contexts: tuple[float, float]
) -> StepTime:
    """One forward pass of ``tokens`` new tokens a sequence; only the last one's logits are computed."""
    head_flops = head_flops_per_token(decoder)
    layer_flops = tokens * (forward_flops_per_token(decoder, *contexts) - head_flops)
    flops = shape.samples * (layer_flops + head_flops)
    read = (read_weights(decoder) + shape.samples * cached_numbers(decoder, *contexts)) * shape.element_bytes
    degree = shape.tensor_parallel
    activations = shape.samples * tokens * decoder.hidden * shape.element_bytes
    communication_s = (
        _REDUCTIONS_PER_LAYER * decoder.layers * figures.collective_s("all_reduce", activations, degree)
        + figures.collective_s("all_gather", shape.samples * decoder.vocabulary * shape.element_bytes, degree)
        + (figures.send_s(activations) * (shape.pipeline_parallel - 1) if shape.pipeline_parallel > 1 else 0.0)
    )
    return roofline(figures, flops / degree, read / degree) + StepTime(communication_s=communication_s)
