"""A training step, split by DDP, FSDP, ZeRO, tensor, context or pipeline parallelism.

Sources: FLOPs after PaLM (arXiv:2204.02311, appendix B: backward is twice forward); DDP's overlap of gradient buckets
with backward after Li et al. (arXiv:2006.15704); FSDP's gathers before, and scatters behind, each layer after Zhao et
al. (arXiv:2304.11277); tensor parallel after Megatron-LM (arXiv:1909.08053: two all-reduces a layer in forward, two in
backward, and forward's again where it is done twice); context parallel after Llama 3 (arXiv:2407.21783, 3.3.2: keys and
values gathered in every layer); the pipeline's bubble after GPipe (arXiv:1811.06965), of interleaved stages after
Narayanan et al. (arXiv:2104.04473, 2.2).
"""

from __future__ import annotations

from dataclasses import replace

from pybench.core.flops import num_parameters
from pybench.explain.comm_model.figures import NodeFigures
from pybench.explain.comm_model.layer_bytes import LayerBytes
from pybench.explain.comm_model.step_time import StepTime, roofline
from pybench.explain.comm_model.training_shape import TrainingShape
from pybench.explain.comm_model.zero import UNFUSED_UPDATE_PASSES, exchange_s, moved_bytes
from pybench.model.decoder_flops import forward_flops_per_token, step_flops_per_token
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.stage_memory import rank_weights

# In a layer's forward, and as many in its backward.
_REDUCTIONS_PER_PASS = 2
# AdamW reads weight, gradient and two moments, and writes weight and moments.
_OPTIMIZER_PASSES = 7
# clip_grad_norm_ reads the gradients for their norm, then scales them in place.
_CLIP_PASSES = 3
# Each pass but the first reads the sum of the gradients and its own, and writes the sum.
_ACCUMULATION_PASSES = 3
# Cross-entropy in float32 over 16-bit logits, kernel by kernel. Forward: cast (reads 2, writes 4), log-softmax (4 and
# 4). Backward: the gradients of the picked entries (writes 4), of log-softmax (8 and 4) and of the cast (4 and 2).
_LOSS_BYTES_PER_LOGIT = (14, 22)
# Compiled: forward reads the logits for their maximum and their sum, backward reads them and writes their gradient.
_FUSED_LOSS_BYTES_PER_LOGIT = (4, 4)
# Of a vocabulary that ranks split. Forward: the largest (reads 2), the distance from it (2 and 4), its exponential (4
# and 4), their sum (4), the quotient (4 and 4). Backward: the gradient (4 and 4) and its cast (4 and 2).
_SPLIT_LOSS_BYTES_PER_LOGIT = (28, 14)
# Of a collective beside which products run: it takes multiprocessors and memory traffic from them. Without this,
# predictions for DDP, Accelerate and FSDP on 2 and 4 H200s lack 0.36 to 0.52 of the collectives' time.
_UNHIDDEN_FRACTION = 0.45


def training_step(figures: NodeFigures, decoder: DecoderShape, shape: TrainingShape) -> StepTime:
    """Forward, backward and update. Raises ``UnmeasuredError``."""
    tokens = shape.samples * shape.sequence_tokens / shape.context_parallel
    forward_s, backward_s = _passes_s(figures, decoder, shape, tokens)
    trained = _trained(decoder, shape)
    gradient_bytes = trained * shape.element_bytes
    sharing = _SHARING[shape.sharing]
    # Microbatches of a pipeline add their gradients as passes do.
    summed_bytes = _ACCUMULATION_PASSES * (shape.passes * shape.microbatches - 1) * gradient_bytes
    unpackings = shape.passes * (2 + shape.recompute)
    work = StepTime(
        compute_s=forward_s + backward_s,
        memory_s=(
            _update_bytes(shape, trained)
            + summed_bytes
            + _loss_bytes(decoder, shape, tokens)
            + _norm_bytes(decoder, shape, tokens)
            + _in_layers(decoder, shape, tokens / shape.tensor_parallel, shape.inner)
            + unpackings * shape.unpacked_bytes
        )
        / figures.memory_bytes_per_s,
        communication_s=sharing(figures, decoder, shape, gradient_bytes, forward_s, backward_s)
        + _inside_s(figures, decoder, shape)
        + _between_chunks_s(figures, decoder, shape),
    )
    return work + _adapters(figures, decoder, shape, tokens)


def _adapters(figures: NodeFigures, decoder: DecoderShape, shape: TrainingShape, tokens: float) -> StepTime:
    """The adapters' products: forward 2 operations for each of their weights and token, backward twice that."""
    own = tokens / shape.tensor_parallel * pipeline_fraction(decoder, shape)
    flops = 2 * (shape.adapters or 0) * own * (3 + shape.recompute)
    moved = 0.0 if shape.adapter_products is None else shape.adapter_products.step(recompute=shape.recompute)
    return roofline(figures, flops, moved * own * decoder.layers)


def _passes_s(figures: NodeFigures, decoder: DecoderShape, shape: TrainingShape, tokens: float) -> tuple[float, float]:
    """Of products and attention: forward, and backward with what is computed again."""
    attending, first = _attention(decoder, shape)
    forward = forward_flops_per_token(attending, first, shape.sequence_tokens)
    layer, head = _step_flops(attending, shape, first)
    share = pipeline_fraction(decoder, shape) * tokens / shape.tensor_parallel / figures.matmul_flops_per_s
    return forward * share, (layer * decoder.layers + head - forward) * share


def _step_flops(decoder: DecoderShape, shape: TrainingShape, first: int) -> tuple[float, float]:
    return step_flops_per_token(
        decoder,
        first,
        shape.sequence_tokens,
        recompute=shape.recompute,
        loss_in_chunks=shape.loss_in_chunks,
        adapters=shape.adapters is not None,
    )


def _loss_bytes(decoder: DecoderShape, shape: TrainingShape, tokens: float) -> float:
    whole = _FUSED_LOSS_BYTES_PER_LOGIT if shape.fused_loss else _LOSS_BYTES_PER_LOGIT
    forward, backward = whole if shape.tensor_parallel == 1 else _SPLIT_LOSS_BYTES_PER_LOGIT
    logits = tokens * decoder.vocabulary / shape.tensor_parallel
    return logits * (forward * (1 + shape.loss_in_chunks) + backward)


def _norm_bytes(decoder: DecoderShape, shape: TrainingShape, tokens: float) -> float:
    own = tokens / shape.tensor_parallel if shape.split_tokens else tokens
    return _in_layers(decoder, shape, own * decoder.hidden, shape.norms)


def _in_layers(decoder: DecoderShape, shape: TrainingShape, number: float, each: LayerBytes | None) -> float:
    """Of so many tokens or numbers in all layers of a rank."""
    if each is None:
        return 0.0
    again = shape.recompute or shape.recompute_between
    return number * decoder.layers * pipeline_fraction(decoder, shape) * each.step(recompute=again)


def _attention(decoder: DecoderShape, shape: TrainingShape) -> tuple[DecoderShape, int]:
    """The decoder, and the first of the positions up to a sequence's last of which attention computes the mean.

    Of a causal sequence it is the half that a token sees. A chunk's queries meet all keys, in sliding layers too: the
    mask throws the rest away.
    """
    if shape.context_parallel == 1:
        return decoder, 0
    return replace(decoder, sliding_layers=0), shape.sequence_tokens


def _update_bytes(shape: TrainingShape, trained: float) -> float:
    """Bytes that a rank moves to update its share of so many parameters, and to bring their gradients together."""
    if shape.sharing == "zero":
        return moved_bytes(trained, shape.sharing_ranks)
    held = trained / (shape.sharing_ranks if shape.sharing == "fsdp" else 1)
    passes = _OPTIMIZER_PASSES if shape.fused_update else UNFUSED_UPDATE_PASSES
    updated_bytes = (passes + _CLIP_PASSES * shape.clip) * held * shape.element_bytes
    has_buckets = shape.sharing == "ddp" and shape.sharing_ranks > 1
    return updated_bytes + (2 * shape.bucket_copies * trained * shape.element_bytes if has_buckets else 0.0)


def _trained(decoder: DecoderShape, shape: TrainingShape) -> float:
    """Parameters that a rank trains; in a pipeline the one that has most, since a step ends when all are updated."""
    if shape.adapters is not None:
        return shape.adapters / (shape.tensor_parallel * shape.pipeline_parallel)
    return max(rank_weights(decoder, shape.layers_of(decoder))) / shape.tensor_parallel


def pipeline_fraction(decoder: DecoderShape, shape: TrainingShape) -> float:
    """Time of the work with its bubble, over that of all work on one rank: s + (1 - s) / (v m), for m microbatches.

    The slowest rank has the share s of the work, and the others' share of one microbatch passes before and behind it;
    with v stages each, only one of the others' v stages. Of p equal ranks it is (m + (p - 1) / v) / (m p). The head is
    work of the last rank.
    """
    layer, head = _step_flops(decoder, shape, 0)
    *others, last = (layer * count for count in shape.layers_of(decoder))
    slowest = max(*others, last + head) / (layer * decoder.layers + head) if others else 1.0
    return slowest + (1 - slowest) / (shape.stages_per_rank * shape.microbatches)


def _ddp_s(
    figures: NodeFigures,
    _decoder: DecoderShape,
    shape: TrainingShape,
    gradient_bytes: float,
    _forward_s: float,
    backward_s: float,
) -> float:
    """What the last pass's backward does not hide: the last bucket, full only when backward is over, and of others."""
    buckets = max(1.0, gradient_bytes / shape.bucket_bytes)
    reduce_s = figures.collective_s("all_reduce", gradient_bytes / buckets, shape.sharing_ranks)
    before_last_s = (buckets - 1) * reduce_s
    return reduce_s + _beside_s(before_last_s, backward_s / shape.passes * (1 - 1 / buckets))


def _beside_s(collective_s: float, computing_s: float) -> float:
    """By how much a collective and computing beside each other take longer than the computing alone."""
    return max(_UNHIDDEN_FRACTION * collective_s, collective_s - computing_s)


def _fsdp_s(
    figures: NodeFigures,
    decoder: DecoderShape,
    shape: TrainingShape,
    gradient_bytes: float,
    forward_s: float,
    backward_s: float,
) -> float:
    """Layer by layer: what the neighbour's computing does not hide, the first gather of a pass and the last scatter.

    Between passes a rank keeps whole gradients, but no whole weights.
    """
    layers, degree, passes = decoder.layers, shape.sharing_ranks, shape.passes
    all_bytes = shape.stored_bytes or num_parameters(decoder) * shape.element_bytes
    weight_bytes = all_bytes / (shape.tensor_parallel * shape.pipeline_parallel)
    gather_s = figures.collective_s("all_gather", weight_bytes / layers, degree)
    scatter_s = figures.collective_s("reduce_scatter", gradient_bytes / layers, degree)
    layer_backward_s = backward_s / passes / layers
    in_forward_s = passes * _beside_s(gather_s, forward_s / passes / layers)
    in_backward_s = (passes - 1) * _beside_s(gather_s, layer_backward_s)
    in_last_s = _beside_s(gather_s + scatter_s, layer_backward_s)
    return passes * gather_s + scatter_s + (layers - 1) * (in_forward_s + in_backward_s + in_last_s)


def _zero_s(
    figures: NodeFigures,
    _decoder: DecoderShape,
    shape: TrainingShape,
    gradient_bytes: float,
    _forward_s: float,
    _backward_s: float,
) -> float:
    """All of it."""
    return exchange_s(figures, gradient_bytes / shape.element_bytes, shape.element_bytes, shape.sharing_ranks)


_SHARING = {"ddp": _ddp_s, "fsdp": _fsdp_s, "zero": _zero_s}


def _inside_s(figures: NodeFigures, decoder: DecoderShape, shape: TrainingShape) -> float:
    """Activations: reduced in every layer and for the head, handed on by each stage, their gradients back."""
    tokens_bytes = shape.samples / shape.passes * shape.sequence_tokens * shape.element_bytes
    activations = tokens_bytes * decoder.hidden
    degree = shape.tensor_parallel
    reductions = (_REDUCTIONS_PER_PASS * (2 + shape.recompute) * decoder.layers + 1) / shape.pipeline_parallel
    reduced_s = reductions * figures.collective_s("all_reduce", activations, degree)
    sent_s = 2 * shape.stages_per_rank * figures.send_s(activations) if shape.pipeline_parallel > 1 else 0.0
    return shape.passes * (reduced_s + sent_s)


def _between_chunks_s(figures: NodeFigures, decoder: DecoderShape, shape: TrainingShape) -> float:
    """Keys, then values: gathered before the attention of every layer, their gradients scattered behind its backward.

    Attention waits for each, so nothing hides them. Copies that order the chunks are left out.
    """
    numbers = shape.samples / shape.passes * shape.sequence_tokens * decoder.key_value_heads * decoder.head_width
    gather_s, scatter_s = (
        figures.collective_s(operation, numbers * shape.element_bytes, shape.context_parallel)
        for operation in ("all_gather", "reduce_scatter")
    )
    return shape.passes * 2 * decoder.layers * ((1 + shape.recompute) * gather_s + scatter_s)
