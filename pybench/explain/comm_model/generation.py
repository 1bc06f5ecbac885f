"""Offline batch generation, split over tensor- and pipeline-parallel ranks.

Tensor parallel after Megatron-LM (arXiv:1909.08053): two all-reduces of the activations in every layer, and a gather of
the logits. A pipeline holds one batch: its stages work one after the other, and each hands its activations on.
"""

from __future__ import annotations

from dataclasses import dataclass

from pybench.core.flops import cached_numbers, read_weights
from pybench.explain.comm_model.figures import NodeFigures
from pybench.explain.comm_model.layer_bytes import LayerBytes
from pybench.explain.comm_model.step_time import StepTime, roofline
from pybench.model.decoder_flops import attention_flops_per_token, forward_flops_per_token, head_flops_per_token
from pybench.model.decoder_shape import DecoderShape

_REDUCTIONS_PER_LAYER = 2
# Kernels of one token a sequence reach eight ninths of the rates at which a node copies and multiplies: chosen by kept
# rounds of vLLM and plain PyTorch on 2 and 4 H200s and H100s, of five hosts.
_ROUND_OVER_RATE = 9 / 8


@dataclass(frozen=True, kw_only=True)
class GenerationShape:
    """Sequences, tokens and bytes of an element; ``samples`` are those of one replica. ``None``: norms are left out."""

    samples: int
    prompt_tokens: int
    output_tokens: int
    element_bytes: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    norms: LayerBytes | None = None


def generation_phases(figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape) -> tuple[StepTime, StepTime]:
    """Prefill, and a round for each further output token at the mean context. Raises ``UnmeasuredError``."""
    rounds = decode_round(figures, decoder, shape).times(shape.output_tokens - 1)
    return prefill(figures, decoder, shape), rounds


def decode_round(figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape) -> StepTime:
    """One more token of every sequence, at the mean context. Raises ``UnmeasuredError``."""
    contexts = (shape.prompt_tokens, shape.prompt_tokens + shape.output_tokens)
    return _pass(figures, decoder, shape, tokens=1, contexts=contexts, over_rate=_ROUND_OVER_RATE)


def prefill(figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape) -> StepTime:
    """The prompts' pass alone."""
    return _pass(figures, decoder, shape, tokens=shape.prompt_tokens, contexts=(0, shape.prompt_tokens))


def _pass(
    figures: NodeFigures,
    decoder: DecoderShape,
    shape: GenerationShape,
    *,
    tokens: int,
    contexts: tuple[float, float],
    over_rate: float = 1.0,
) -> StepTime:
    """One forward pass of ``tokens`` new tokens a sequence; only the last one's logits are computed.

    Its kernels take ``over_rate`` times as long as at the node's rates.

    Products read weights, attention reads what is cached. Their kernels follow one another, so each has a roofline of
    its own: a round of many sequences computes in the former and waits for memory in the latter. Norms wait for memory,
    as long on every tensor-parallel rank.
    """
    new = shape.samples * tokens
    attention_flops = new * attention_flops_per_token(decoder, *contexts)
    head_flops = head_flops_per_token(decoder)
    layer_flops = new * (forward_flops_per_token(decoder, *contexts) - head_flops) - attention_flops
    products = roofline(
        figures,
        (layer_flops + shape.samples * head_flops) / shape.tensor_parallel,
        read_weights(decoder, new) * shape.element_bytes / shape.tensor_parallel,
    )
    attention = roofline(
        figures,
        attention_flops / shape.tensor_parallel,
        shape.samples * cached_numbers(decoder, *contexts) * shape.element_bytes / shape.tensor_parallel,
    )
    norm_bytes = 0.0 if shape.norms is None else new * decoder.hidden * decoder.layers * shape.norms.forward
    work = products + attention + StepTime(memory_s=norm_bytes / figures.memory_bytes_per_s)
    return work.times(over_rate) + StepTime(communication_s=_communication_s(figures, decoder, shape, tokens))


def _communication_s(figures: NodeFigures, decoder: DecoderShape, shape: GenerationShape, tokens: int) -> float:
    degree = shape.tensor_parallel
    activations = shape.samples * tokens * decoder.hidden * shape.element_bytes
    logits = shape.samples * decoder.vocabulary * shape.element_bytes
    return (
        _REDUCTIONS_PER_LAYER * decoder.layers * figures.collective_s("all_reduce", activations, degree)
        + figures.collective_s("all_gather", logits, degree)
        + (figures.send_s(activations) * (shape.pipeline_parallel - 1) if shape.pipeline_parallel > 1 else 0.0)
    )
