"""Step times by hand, on a node that does 1 FLOP and moves 1 byte in a second."""

from __future__ import annotations

import dataclasses

import pytest

from pybench.explain.comm_model.alpha_beta import AlphaBeta
from pybench.explain.comm_model.figures import GpuFigures, NodeFigures, UnmeasuredError
from pybench.explain.comm_model.generation import GenerationShape, decode_round, generation_phases, prefill
from pybench.explain.comm_model.layer_bytes import LayerBytes
from pybench.explain.comm_model.norms import fused_norms, plain_norms
from pybench.explain.comm_model.step_time import Baseline, BaselinePhase, StepTime, attribute, roofline
from pybench.explain.comm_model.training import pipeline_fraction, training_step
from pybench.explain.comm_model.training_shape import TrainingShape
from pybench.model.workloads.train_strategies import Sharing
from tests.builders import DECODER

_LAYER = 192 + 384  # weights, as tests/core/test_flops.py counts them
_HEAD = 32 * 8
_FREE = AlphaBeta(0.0, 0.0)
_UNIT = NodeFigures(
    matmul_flops_per_s=1.0,
    memory_bytes_per_s=1.0,
    peer_bytes_per_s=1.0,
    collectives={("all_reduce", 2): AlphaBeta(100.0, 0.0), ("all_gather", 2): AlphaBeta(10.0, 0.0)},
)


def test_the_longer_of_computing_and_moving() -> None:
    """Never both."""
    assert roofline(_UNIT, 3.0, 2.0) == StepTime(compute_s=3.0)
    assert roofline(_UNIT, 2.0, 3.0) == StepTime(memory_s=3.0)


def test_a_prefill_by_hand() -> None:
    """3 sequences of 4 tokens: 2 FLOPs a weight, scores and values over a mean context of 2, logits of one token."""
    shape = GenerationShape(samples=3, prompt_tokens=4, output_tokens=2, element_bytes=1)
    attention = 4 * 2 * 8 * 2
    assert prefill(_UNIT, DECODER, shape) == StepTime(compute_s=3 * (4 * (2 * 2 * _LAYER + attention) + 2 * _HEAD))


def test_a_decode_round_reads_weights_and_cache() -> None:
    """One sequence: bytes outweigh FLOPs once memory is slow. Cache: 2 * 2 layers * 2 heads * 2 wide a token.

    A round's kernels reach eight ninths of the node's rates.
    """
    slow = dataclasses.replace(_UNIT, memory_bytes_per_s=1e-3)
    shape = GenerationShape(samples=1, prompt_tokens=4, output_tokens=3, element_bytes=2)
    _, rounds = generation_phases(slow, DECODER, shape)
    assert rounds.memory_s == pytest.approx(2 * 1e3 * 2 * (2 * _LAYER + _HEAD + 5.5 * 16) * 9 / 8)


def test_products_compute_while_attention_waits_for_memory() -> None:
    """8 sequences, 1.5 bytes a second: 16 FLOPs a weight outlast its 8 bytes, and 4 a cached number do not."""
    node = dataclasses.replace(_UNIT, memory_bytes_per_s=1.5)
    shape = GenerationShape(samples=8, prompt_tokens=4, output_tokens=3, element_bytes=8)
    found = decode_round(node, DECODER, shape)
    assert found.compute_s == 8 * 2 * (2 * _LAYER + _HEAD) * 9 / 8
    assert found.memory_s == pytest.approx(8 * 5.5 * 16 * 8 / 1.5 * 9 / 8)


def test_every_tensor_parallel_rank_computes_the_norms() -> None:
    """12 tokens of 8 numbers in 2 layers, 84 bytes each in plain PyTorch and 16 fused."""
    shape = GenerationShape(samples=3, prompt_tokens=4, output_tokens=2, element_bytes=2)
    for norms, num_bytes in ((plain_norms(2), 84), (fused_norms(2), 16)):
        for ranks in (1, 2):
            split = dataclasses.replace(shape, norms=norms, tensor_parallel=ranks)
            assert prefill(_UNIT, DECODER, split).memory_s == 12 * 8 * 2 * num_bytes


def test_norms_of_training_are_split_with_the_tokens() -> None:
    """4 tokens of 8 numbers in 2 layers; forward 84 bytes each, as many for what is computed again, backward 214."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=2, tensor_parallel=2)
    without_s = training_step(_UNIT, DECODER, shape).memory_s
    for split_tokens, numbers in ((False, 4 * 8 * 2), (True, 2 * 8 * 2)):
        normed = dataclasses.replace(shape, norms=plain_norms(2), split_tokens=split_tokens)
        assert training_step(_UNIT, DECODER, normed).memory_s - without_s == numbers * (84 + 214)
        again = dataclasses.replace(normed, recompute=True)
        assert training_step(_UNIT, DECODER, again).memory_s - without_s == numbers * (2 * 84 + 214)


def test_what_lies_between_products_moves_bytes_for_each_token() -> None:
    """4 tokens in 2 layers: 3 bytes in forward, as many for what is computed again, and 5 in backward.

    Selective checkpointing computes them again, too, and no product. Tensor-parallel ranks share them.
    """
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=2)
    without_s = training_step(_UNIT, DECODER, shape).memory_s
    moving = dataclasses.replace(shape, inner=LayerBytes(forward=3.0, backward=5.0))
    assert training_step(_UNIT, DECODER, moving).memory_s - without_s == 4 * 2 * (3 + 5)
    again = dataclasses.replace(moving, recompute=True)
    assert training_step(_UNIT, DECODER, again).memory_s - without_s == 4 * 2 * (2 * 3 + 5)
    selective = training_step(_UNIT, DECODER, dataclasses.replace(moving, recompute_between=True))
    assert selective.memory_s - without_s == 4 * 2 * (2 * 3 + 5)
    assert selective.compute_s == training_step(_UNIT, DECODER, shape).compute_s
    split = dataclasses.replace(moving, tensor_parallel=2)
    split_s = training_step(_UNIT, DECODER, dataclasses.replace(split, inner=None)).memory_s
    assert training_step(_UNIT, DECODER, split).memory_s - split_s == 4 * 2 * (3 + 5) / 2


def test_tensor_parallel_halves_work_and_adds_reductions() -> None:
    """Two in each of two layers, and one gather."""
    one = GenerationShape(samples=1, prompt_tokens=4, output_tokens=2, element_bytes=1)
    two = dataclasses.replace(one, tensor_parallel=2)
    alone, shared = prefill(_UNIT, DECODER, one), prefill(_UNIT, DECODER, two)
    assert shared.compute_s == alone.compute_s / 2
    assert (alone.communication_s, shared.communication_s) == (0.0, 4 * 100.0 + 10.0)


def test_a_pipeline_of_one_batch_gains_nothing() -> None:
    """It hands activations on: 1 sequence of 4 tokens, 8 wide."""
    shape = GenerationShape(samples=1, prompt_tokens=4, output_tokens=2, element_bytes=1, pipeline_parallel=3)
    assert prefill(_UNIT, DECODER, shape).communication_s == 2 * 4 * 8


def test_tied_embeddings_are_read_as_the_head() -> None:
    """As many bytes as two matrices of which one is hardly read."""
    shape = GenerationShape(samples=1, prompt_tokens=1, output_tokens=2, element_bytes=1)
    slow = dataclasses.replace(_UNIT, memory_bytes_per_s=1e-3)
    tied = dataclasses.replace(DECODER, tied_embeddings=True)
    assert prefill(slow, tied, shape) == prefill(slow, DECODER, shape)


def test_what_was_not_measured_is_told() -> None:
    """An all-reduce bounds the collectives that it contains."""
    assert _UNIT.collective_s("reduce_scatter", 1.0, 2) == 100.0
    with pytest.raises(UnmeasuredError, match="no size curve of all_gather on 4 GPUs"):
        _UNIT.collective_s("all_gather", 1.0, 4)
    with pytest.raises(UnmeasuredError, match="no peer_copy"):
        dataclasses.replace(_UNIT, peer_bytes_per_s=None).send_s(1.0)


def test_ddp_waits_for_its_last_bucket_and_is_slowed_down_by_the_others() -> None:
    """By 0.45 of them in a long backward; a short one is over before they are. The model is less than one bucket."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, data_parallel=2)
    assert training_step(_UNIT, DECODER, shape).communication_s == 100.0
    large = dataclasses.replace(DECODER, vocabulary=2**24)  # 256 MiB, 10.24 buckets
    backward_s = 2 * 4 * (2 * 2 * _LAYER + 2 * 2**24 * 8 + 4 * 2 * 8 * 2)
    buckets = (2 * _LAYER + 2 * 2**24 * 8) / (25 * 2**20)
    fast = dataclasses.replace(_UNIT, matmul_flops_per_s=backward_s / 500)
    assert training_step(fast, large, shape).communication_s == pytest.approx(buckets * 100 - 500 * (1 - 1 / buckets))
    assert training_step(_UNIT, large, shape).communication_s == pytest.approx(100 + 0.45 * 100 * (buckets - 1))


def test_ddp_updates_every_weight_and_fsdp_its_share() -> None:
    """Seven passes over weights, gradients and moments; the loss passes over 4 tokens' logits besides.

    DDP reads and writes each gradient for its bucket, and again on its way back.
    """
    ddp = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, data_parallel=2)
    fsdp = dataclasses.replace(ddp, sharing="fsdp")
    parameters, loss = 2 * _LAYER + 2 * _HEAD, 36 * 4 * 32
    assert training_step(_UNIT, DECODER, ddp).memory_s == (7 + 4) * parameters + loss
    views = dataclasses.replace(ddp, bucket_copies=1)
    assert training_step(_UNIT, DECODER, views).memory_s == (7 + 2) * parameters + loss
    alone = dataclasses.replace(ddp, data_parallel=1)
    assert training_step(_UNIT, DECODER, alone).memory_s == 7 * parameters + loss
    assert training_step(_UNIT, DECODER, fsdp).memory_s == 7 * parameters / 2 + loss
    # Clipping reads every gradient for the norm, reads it again and writes it.
    assert training_step(_UNIT, DECODER, dataclasses.replace(fsdp, clip=True)).memory_s == 10 * parameters / 2 + loss


def test_tensor_parallel_ranks_split_the_loss_and_stages_do_not() -> None:
    """Each has its part of the vocabulary, in more kernels; a pipeline waits for its last stage."""
    one = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1)
    updated, logits = 7 * (2 * _LAYER + 2 * _HEAD), 4 * 32
    layers, stages = dataclasses.replace(one, tensor_parallel=2), dataclasses.replace(one, pipeline_parallel=2)
    assert training_step(_UNIT, DECODER, layers).memory_s == updated / 2 + 42 * logits / 2
    assert training_step(_UNIT, DECODER, stages).memory_s == updated / 2 + 36 * logits


def test_one_kernel_moves_less_than_many() -> None:
    """AdamW in 7 passes over each weight or, kernel by kernel, 20; a compiled loss in 8 bytes of each logit, not 36.

    Of a split vocabulary no loss is compiled.
    """
    one = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1)
    parameters, logits = 2 * _LAYER + 2 * _HEAD, 4 * 32
    unfused, compiled = dataclasses.replace(one, fused_update=False), dataclasses.replace(one, fused_loss=True)
    assert training_step(_UNIT, DECODER, unfused).memory_s == 20 * parameters + 36 * logits
    assert training_step(_UNIT, DECODER, compiled).memory_s == 7 * parameters + 8 * logits
    split = dataclasses.replace(compiled, tensor_parallel=2)
    assert training_step(_UNIT, DECODER, split).memory_s == (7 * parameters + 42 * logits) / 2


def test_fsdp_waits_for_what_no_layer_hides() -> None:
    """First gather 10 and last scatter 100, for which the all-reduce stands in; with no compute at all, every layer.

    Those of the other of two layers slow its forward and backward down by 0.45 of 10 and of 110.
    """
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, data_parallel=2, sharing="fsdp")
    assert training_step(_UNIT, DECODER, shape).communication_s == 110.0 + 0.45 * (10 + 110)
    fast = dataclasses.replace(_UNIT, matmul_flops_per_s=1e12)
    assert training_step(fast, DECODER, shape).communication_s == pytest.approx(110 + 10 + 110)


def test_recomputing_does_the_layers_forward_twice() -> None:
    """4 instead of 3 passes; of the head and its loss 3, but where the loss is made in chunks."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1)
    layers, head = 4 * (2 * 2 * _LAYER + 4 * 2 * 8 * 2), 4 * 2 * _HEAD
    assert training_step(_UNIT, DECODER, shape).compute_s == 3 * (layers + head)
    again, chunks = dataclasses.replace(shape, recompute=True), dataclasses.replace(shape, loss_in_chunks=True)
    assert training_step(_UNIT, DECODER, again).compute_s == 4 * layers + 3 * head
    found = training_step(_UNIT, DECODER, chunks)
    assert found.compute_s == 3 * layers + 4 * head


@pytest.mark.parametrize(("degree", "forward", "backward"), [(1, 14, 22), (2, 28, 14)])
def test_a_loss_in_chunks_passes_over_its_logits_again(degree: int, forward: int, backward: int) -> None:
    """As often as forward does; nothing else does."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, tensor_parallel=degree)
    whole, chunks = (
        training_step(_UNIT, DECODER, dataclasses.replace(shape, loss_in_chunks=each)) for each in (False, True)
    )
    assert chunks.memory_s - whole.memory_s == forward * 4 * 32 / degree
    assert (
        whole.memory_s - training_step(_UNIT, dataclasses.replace(DECODER, vocabulary=0), shape).memory_s
        == ((forward + backward) * 4 * 32 + 7 * 2 * _HEAD) / degree
    )
    assert chunks.communication_s == whole.communication_s


def test_frozen_weights_get_no_gradient_of_their_own() -> None:
    """Backward is once forward, attention's twice; adapters alone are updated. Recomputed layers do forward twice."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, adapters=10)
    attention, weights = 4 * 4 * 2 * 8 * 2, 4 * (2 * 2 * _LAYER + 2 * _HEAD)
    found = training_step(_UNIT, DECODER, shape)
    products = 2 * 4 * 10
    assert found.compute_s == pytest.approx(2 * weights + 3 * attention + 3 * products)
    assert found.memory_s == 7 * 10 + 36 * 4 * 32
    again = training_step(_UNIT, DECODER, dataclasses.replace(shape, recompute=True))
    assert again.compute_s == pytest.approx(3 * weights + 4 * attention - 4 * 2 * _HEAD + 4 * products)


def test_thin_adapters_wait_for_memory() -> None:
    """Of 3 bytes in forward and 6 in backward for 4 tokens in 2 layers, where their products are done sooner."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, adapters=10)
    bare = training_step(_UNIT, DECODER, dataclasses.replace(shape, adapters=0))
    thin = training_step(_UNIT, DECODER, dataclasses.replace(shape, adapter_products=LayerBytes(300.0, 600.0)))
    assert thin.compute_s == bare.compute_s
    assert thin.memory_s - bare.memory_s == 7 * 10 + 4 * 2 * 900
    thick = training_step(_UNIT, DECODER, dataclasses.replace(shape, adapter_products=LayerBytes(3.0, 6.0)))
    assert thick.memory_s - bare.memory_s == 7 * 10
    assert thick.compute_s - bare.compute_s == 3 * 2 * 4 * 10


def test_four_bits_are_unpacked_in_each_pass_over_the_layers() -> None:
    """Forward, where layers are recomputed again, and backward, in both passes; FSDP gathers what is stored."""
    shape = TrainingShape(samples=2, sequence_tokens=4, element_bytes=1, adapters=10, passes=2)
    for recompute, times in ((False, 4), (True, 6)):
        packed = dataclasses.replace(shape, recompute=recompute, unpacked_bytes=1000.0)
        whole_s = training_step(_UNIT, DECODER, dataclasses.replace(packed, unpacked_bytes=0.0)).memory_s
        assert training_step(_UNIT, DECODER, packed).memory_s - whole_s == times * 1000
    curves = {(name, 2): AlphaBeta(0.0, 1.0) for name in ("all_gather", "reduce_scatter")}
    node = dataclasses.replace(_UNIT, collectives=curves)
    sharded = dataclasses.replace(shape, samples=64, passes=1, data_parallel=2, sharing="fsdp", stored_bytes=500.0)
    assert training_step(node, DECODER, sharded).communication_s == 250 + 5.0 + 0.45 * (2 * 250 + 5.0)


@pytest.mark.parametrize(
    ("sharing", "shared_s"),
    [("ddp", 10.0), ("fsdp", _LAYER + _HEAD + 5.0 + 0.45 * (2 * (_LAYER + _HEAD) + 5.0))],
)
def test_adapters_alone_are_reduced_and_whole_layers_gathered(sharing: Sharing, shared_s: float) -> None:
    """A byte takes a second. FSDP's first gather of two and last scatter stay; others slow computing down."""
    curves = {(name, 2): AlphaBeta(0.0, 1.0) for name in ("all_reduce", "all_gather", "reduce_scatter")}
    shape = TrainingShape(samples=64, sequence_tokens=4, element_bytes=1, data_parallel=2, sharing=sharing, adapters=10)
    node = dataclasses.replace(_UNIT, collectives=curves)
    assert training_step(node, DECODER, shape).communication_s == pytest.approx(shared_s)


def test_tensor_parallel_training_reduces_four_times_a_layer() -> None:
    """Two forward, two backward, one for the head; recomputing repeats forward's. One copy shares no gradients."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, tensor_parallel=2)
    assert training_step(_UNIT, DECODER, shape).communication_s == 9 * 100
    again = dataclasses.replace(shape, recompute=True)
    assert training_step(_UNIT, DECODER, again).communication_s == 13 * 100


def test_chunks_gather_keys_and_values_and_attend_to_all_of_them() -> None:
    """2 tokens of 4, each over 4 keys in 2 layers, whatever the window. K and V of a layer: gathered 10, scattered 100.

    Gradients of both chunks are one bucket of 100, which each rank copies to and fro.
    """
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, context_parallel=2)
    found = training_step(_UNIT, DECODER, shape)
    assert found.compute_s == 3 * 2 * (2 * 2 * _LAYER + 2 * _HEAD + 4 * 8 * 4 * 2)
    assert found.communication_s == 2 * 2 * (10 + 100) + 100
    assert found.memory_s == (7 + 4) * (2 * _LAYER + 2 * _HEAD) + 36 * 2 * 32
    sliding = dataclasses.replace(DECODER, sliding_layers=1, window_tokens=1)
    assert training_step(_UNIT, sliding, shape) == found
    again = training_step(_UNIT, DECODER, dataclasses.replace(shape, recompute=True))
    assert again.communication_s == 2 * 2 * (2 * 10 + 100) + 100


def test_chunks_exchange_as_many_bytes_as_all_their_keys_have() -> None:
    """2 heads 2 wide, 4 tokens of 3 samples, 2 bytes each; a byte takes a second, and nothing else any time."""
    curves = {(name, 2): AlphaBeta(0.0, 1.0) for name in ("all_gather", "reduce_scatter")}
    node = dataclasses.replace(_UNIT, collectives={**curves, ("all_reduce", 2): _FREE})
    shape = TrainingShape(samples=3, sequence_tokens=4, element_bytes=2, context_parallel=2)
    assert training_step(node, DECODER, shape).communication_s == 2 * 2 * 2 * (2 * 2 * 4 * 3 * 2)
    halves = dataclasses.replace(shape, passes=2)
    assert training_step(node, DECODER, halves).communication_s == 2 * 2 * 2 * (2 * 2 * 4 * 3 * 2)


# Equal stages: four layers and no work behind them.
_HEADLESS = dataclasses.replace(DECODER, layers=4, vocabulary=0)


def test_a_pipelines_bubble() -> None:
    """GPipe: 4 microbatches over 4 stages take 7/16 of the work each; one microbatch gains nothing."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, pipeline_parallel=4, microbatches=4)
    assert pipeline_fraction(_HEADLESS, shape) == 7 / 16
    assert pipeline_fraction(_HEADLESS, dataclasses.replace(shape, microbatches=1)) == 1
    assert training_step(_UNIT, _HEADLESS, shape).communication_s == 2 * 4 * 8


@pytest.mark.parametrize(("recompute", "passes"), [(False, 3), (True, 4)])
def test_a_pipelines_slowest_rank_decides(recompute: bool, passes: int) -> None:
    """By hand: 8 microbatches, each 4 layers over two ranks. Recomputing is of layers, not of the head behind them.

    Each microbatch but one takes what the slowest rank does, one what all do. The fullest rank updates longest, and
    adds its gradients to those of the microbatches before seven times.
    """
    shape = TrainingShape(
        samples=1, sequence_tokens=4, element_bytes=1, pipeline_parallel=2, microbatches=8, recompute=recompute
    )
    decoder = dataclasses.replace(DECODER, layers=4, vocabulary=128)
    layer, head = passes * (2 * _LAYER + 4 * 4 * 2 * 2), 3 * 2 * 128 * 8
    whole = 4 * layer + head
    uneven = dataclasses.replace(shape, layers_of_ranks=(3, 1))
    assert pipeline_fraction(decoder, shape) == pytest.approx((7 * (2 * layer + head) + whole) / (8 * whole))
    assert pipeline_fraction(decoder, uneven) == pytest.approx((7 * max(3 * layer, layer + head) + whole) / (8 * whole))
    even_s, uneven_s = (training_step(_UNIT, decoder, each).memory_s for each in (shape, uneven))
    assert uneven_s - even_s == (7 + 3 * 7) * _LAYER


def test_interleaved_stages_halve_the_bubble_and_send_twice() -> None:
    """Megatron-LM: 3 of 16 parts are (p - 1) / (m p), with two stages a rank 1.5; two boundaries, there and back."""
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, pipeline_parallel=4, microbatches=4)
    two = dataclasses.replace(shape, stages_per_rank=2)
    assert pipeline_fraction(_HEADLESS, two) == 5.5 / 16
    one_s, two_s = (training_step(_UNIT, _HEADLESS, each) for each in (shape, two))
    assert two_s.compute_s / one_s.compute_s == pytest.approx(5.5 / 7)
    assert two_s.communication_s == 2 * 2 * 4 * 8


def test_gradient_accumulation_hides_less_and_reduces_activations_in_parts() -> None:
    """DDP overlaps with the last pass alone; tensor parallelism pays every pass's latencies."""
    large = dataclasses.replace(DECODER, vocabulary=2**24)
    backward_s = 2 * 4 * (2 * 2 * _LAYER + 2 * 2**24 * 8 + 4 * 2 * 8 * 2)
    buckets = (2 * _LAYER + 2 * 2**24 * 8) / (25 * 2**20)
    fast = dataclasses.replace(_UNIT, matmul_flops_per_s=backward_s / 500)
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, data_parallel=2, passes=2)
    assert training_step(fast, large, shape).communication_s == pytest.approx(buckets * 100 - 250 * (1 - 1 / buckets))
    split = TrainingShape(samples=2, sequence_tokens=4, element_bytes=1, tensor_parallel=2, passes=2)
    assert training_step(_UNIT, DECODER, split).communication_s == 2 * 9 * 100


def test_fsdp_gathers_weights_in_each_pass_and_scatters_gradients_in_the_last() -> None:
    """Of 3 passes: 3 first gathers of 10, one last scatter of 100; the other layer is gathered 6 times, scattered once.

    Each pass but the first reads two gradients of every weight and writes one.
    """
    shape = TrainingShape(samples=3, sequence_tokens=4, element_bytes=1, data_parallel=2, sharing="fsdp")
    one, three = (training_step(_UNIT, DECODER, dataclasses.replace(shape, passes=passes)) for passes in (1, 3))
    assert three.communication_s == pytest.approx(3 * 10 + 100 + 0.45 * (6 * 10 + 100))
    assert three.compute_s == one.compute_s
    assert three.memory_s == one.memory_s + 2 * 3 * (2 * _LAYER + 2 * _HEAD)
    fast = dataclasses.replace(_UNIT, matmul_flops_per_s=1e12)
    whole = training_step(fast, DECODER, dataclasses.replace(shape, passes=3))
    assert whole.communication_s == pytest.approx(3 * 10 + 100 + 6 * 10 + 100)


def test_larger_buckets_are_fewer() -> None:
    """All gradients in one: nothing of it is hidden."""
    large = dataclasses.replace(DECODER, vocabulary=2**24)
    shape = TrainingShape(samples=1, sequence_tokens=4, element_bytes=1, data_parallel=2, bucket_bytes=2**30)
    assert training_step(_UNIT, large, shape).communication_s == 100.0


def _baseline(predicted: StepTime, measured_s: float, *, shrinks: bool = False) -> Baseline:
    return Baseline((BaselinePhase(predicted=predicted, measured_s=measured_s, beyond_shrinks=shrinks),))


def test_calibration_adds_what_one_gpu_takes_beyond_the_model() -> None:
    """Once; a baseline faster than the model shrinks all."""
    base, two = StepTime(compute_s=8.0), StepTime(compute_s=4.0, communication_s=1.0)
    assert _baseline(base, 10.0).calibrated_s([two]) == 7.0
    assert _baseline(base, 4.0).calibrated_s([two]) == 2.5


def test_kernels_beside_the_products_share_the_work() -> None:
    """2 s beyond the model's 8 are 1 s beyond its 4, and no shortfall."""
    base, two = StepTime(compute_s=8.0), StepTime(compute_s=4.0, communication_s=1.0)
    shared = _baseline(base, 10.0, shrinks=True)
    assert shared.calibrated_s([two]) == 6.0
    assert _baseline(base, 4.0, shrinks=True).calibrated_s([two]) == 2.5
    parts = attribute(6.0, shared, predicted=[two], even=[two], share=0.5)
    assert (parts.software_s, parts.communication_s, parts.unexplained_s) == (0.0, 1.0, 0.0)


def test_each_phase_has_a_calibration_of_its_own() -> None:
    """1 s beyond the prefill's 4 is shared, 1 s beyond the rounds' 2 is not; as one phase, 2 s beyond 6 are added."""
    prefill_, rounds = StepTime(compute_s=4.0), StepTime(memory_s=2.0)
    shared = BaselinePhase(predicted=prefill_, measured_s=5.0, beyond_shrinks=True)
    both = Baseline((shared, BaselinePhase(predicted=rounds, measured_s=3.0)))
    halves = [prefill_.times(0.5), rounds.times(0.5)]
    assert both.calibrated_s(halves) == 2.5 + 2.0
    parts = attribute(5.0, both, predicted=halves, even=halves, share=0.5)
    assert (parts.compute_s, parts.memory_s, parts.software_s, parts.unexplained_s) == (0.0, 0.0, 0.5, 0.5)
    assert _baseline(StepTime(compute_s=4.0, memory_s=2.0), 8.0).calibrated_s(halves) == 3.0 + 2.0


def test_one_output_token_leaves_no_rounds_to_calibrate() -> None:
    """Nothing predicted is no pace."""
    nothing = BaselinePhase(predicted=StepTime(), measured_s=0.01)
    assert (nothing.pace, nothing.beyond_s(StepTime())) == (1.0, 0.01)


def test_a_shortfall_adds_up() -> None:
    """Half of 10 is 5, measured 8: 3 too long, of which 1 is communication, 1 software, 0.4 a slow GPU."""
    parts = attribute(
        8.0,
        _baseline(StepTime(compute_s=8.0), 10.0),
        predicted=[StepTime(compute_s=4.4, communication_s=1.0)],
        even=[StepTime(compute_s=4.0, communication_s=1.0)],
        share=0.5,
    )
    assert dataclasses.astuple(parts) == pytest.approx((0.0, 0.0, 1.0, 0.4, 1.0, 0.6))
    assert sum(dataclasses.astuple(parts)) == pytest.approx(3.0)
    assert StepTime(memory_s=1.0).times(3).total_s == 3.0


@pytest.mark.parametrize("shrinks", [False, True])
@pytest.mark.parametrize("baseline_s", [5.0, 9.5, 14.0])
def test_what_is_measured_as_predicted_leaves_nothing_unexplained(baseline_s: float, shrinks: bool) -> None:
    """Whether the baseline is faster or slower than the model; its own communication is its own share's."""
    base = StepTime(compute_s=7.0, memory_s=1.5, communication_s=1.0)
    baseline = _baseline(base, baseline_s, shrinks=shrinks)
    even = [StepTime(compute_s=4.0, memory_s=1.0, communication_s=2.0)]
    slowed = [StepTime(compute_s=5.0, memory_s=1.5, communication_s=2.0)]
    predicted_s = baseline.calibrated_s(slowed)
    parts = attribute(predicted_s, baseline, predicted=slowed, even=even, share=0.5)
    assert parts.unexplained_s == 0.0
    assert parts.imbalance_s > 0
    assert sum(dataclasses.astuple(parts)) == pytest.approx(predicted_s - 0.5 * baseline_s)


def test_figures_on_some_gpus_are_those_of_the_slowest_of_them() -> None:
    """One is slow at products, another at moving bytes; a third is not asked."""
    gpus = {
        name: GpuFigures(matmul_flops_per_s=flops, memory_bytes_per_s=moved)
        for name, flops, moved in (("a", 9.0, 4.0), ("b", 7.0, 5.0), ("c", 1.0, 1.0))
    }
    node = dataclasses.replace(_UNIT, gpus=gpus)
    assert (node.on(["a"]).matmul_flops_per_s, node.on(["a"]).memory_bytes_per_s) == (9.0, 4.0)
    assert (node.on(["a", "b"]).matmul_flops_per_s, node.on(["a", "b"]).memory_bytes_per_s) == (7.0, 4.0)


_H200 = NodeFigures(matmul_flops_per_s=1.0, memory_bytes_per_s=1.0, collectives={("all_reduce", 2): _FREE})


def test_free_communication_costs_nothing() -> None:
    """Nor does one GPU's."""
    assert _H200.collective_s("all_reduce", 1e9, 2) == _H200.collective_s("all_reduce", 1e9, 1) == 0.0
