"""A point's step from its settings, and settings that no prediction follows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.plan.expand import point_id
from pybench.explain.comm_model.figures import UnmeasuredError
from pybench.explain.comm_model.step_time import whole
from pybench.explain.node_figures import node_figures
from pybench.explain.predicted_phases import predicted_phases
from pybench.model.decoder_flops import step_flops_per_token
from pybench.model.effort import Effort
from pybench.model.suite import Point
from pybench.model.workloads.train import Train
from tests.build import Build
from tests.builders import with_settings


def test_what_the_model_does_not_know(runs: Any, build: Build) -> None:
    """Says so: another strategy, chunks over other strategies' weights, no model at all."""
    figures = node_figures(runs.measured_node, "bfloat16")
    fit = build.train(2)
    other = with_settings(fit, strategy="torchtune")
    with pytest.raises(UnmeasuredError, match="knows no strategy torchtune"):
        predicted_phases(figures, other, 4)
    ring = with_settings(fit, context_parallel=2)
    with pytest.raises(UnmeasuredError, match="knows no context_parallel"):
        predicted_phases(figures, ring, 4)
    with pytest.raises(UnmeasuredError, match="knows no matmul"):
        predicted_phases(figures, runs.node_points[0], 1)


def test_strategies_that_do_the_same_work_are_predicted_alike(runs: Any, build: Build) -> None:
    """Accelerate shares as DDP does; split layers work in turn, as long as on one GPU; a lone rank has all."""
    figures = node_figures(runs.measured_node, "bfloat16")
    alone, both = build.train(1), build.train(2)
    accelerate = with_settings(both, strategy="accelerate")
    assert predicted_phases(figures, accelerate, 4) == predicted_phases(figures, both, 4)
    layers = with_settings(alone, strategy="layer_split", pipeline_parallel=2)
    (step,), (split,) = predicted_phases(figures, alone, 4), predicted_phases(figures, layers, 4)
    assert split.compute_s == pytest.approx(step.compute_s)
    assert split.communication_s > 0
    for strategy in ("context_parallel", "layer_split"):
        assert predicted_phases(figures, with_settings(alone, strategy=strategy), 4) == (step,)


def test_norms_are_of_the_kernels_that_run_them(runs: Any, build: Build) -> None:
    """Engines and compilers fuse them; ranks that split the tokens have their own."""
    figures = node_figures(runs.measured_node, "bfloat16")
    plain, fused = (predicted_phases(figures, build.generate(1, backend=name), 4) for name in ("torch", "vllm"))
    assert whole(plain).memory_s > whole(fused).memory_s
    assert whole(plain).compute_s == whole(fused).compute_s
    layers = with_settings(build.train(1), strategy="tensor_parallel", tensor_parallel=2)
    (same,) = predicted_phases(figures, layers, 4)
    for changed in ({"compile": True}, {"sequence_parallel": True}):
        (less,) = predicted_phases(figures, with_settings(layers, **changed), 4)
        assert less.memory_s < same.memory_s
        assert less.compute_s == same.compute_s


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"strategy": "deepspeed", "zero_stage": 3}, "zero_stage = 3"),
        ({"strategy": "deepspeed", "grad_accum": 2}, "grad_accum of deepspeed"),
        ({"strategy": "deepspeed", "offload_optimizer": True}, r"update in host memory, .* \(offload_optimizer\)"),
        ({"strategy": "deepspeed", "dtype": "float32"}, "float32 weights of deepspeed"),
        ({"strategy": "deepspeed", "deepspeed_config": {}}, "deepspeed_config"),
        ({"strategy": "unsloth"}, "strategy unsloth"),
        (
            {"lora_rank": 8, "weights": "nf4", "activation_checkpointing": "selective"},
            "selective .* of weights",
        ),
        ({"strategy": "fsdp", "mixed_precision": "bfloat16"}, "mixed_precision"),
        ({"strategy": "fsdp", "cpu_offload": True}, "cpu_offload"),
        ({"strategy": "fsdp", "reshard_after_forward": False}, "reshard_after_forward"),
        ({"strategy": "fsdp", "async_tensor_parallel": True}, "async_tensor_parallel"),
        ({"strategy": "fsdp", "hybrid_shard": True}, "hybrid_shard"),
        ({"strategy": "fsdp", "context_parallel": 2}, "context_parallel of fsdp"),
        ({"strategy": "pipeline_parallel", "grad_accum": 2}, "grad_accum of pipeline_parallel"),
        ({"strategy": "pipeline_parallel", "stages_per_rank": 2, "grad_accum": 2}, "grad_accum of pipeline_parallel"),
        ({"batch_size_per_gpu": "auto", "grad_accum": "auto", "global_batch_size": 8}, "found by trying"),
    ],
)
def test_training_that_the_model_does_not_know(runs: Any, build: Build, settings: dict[str, Any], named: str) -> None:
    """Refused by name."""
    figures = node_figures(runs.measured_node, "bfloat16")
    fit = build.train(2)
    asked = dataclasses.replace(fit, settings=dataclasses.replace(fit.settings, **settings))
    with pytest.raises(UnmeasuredError, match=named):
        predicted_phases(figures, asked, 4)


def test_four_bits_take_longer_to_read(runs: Any, build: Build) -> None:
    """Products are the same; weights are unpacked, and outputs copied. FSDP gathers less."""
    figures = node_figures(runs.measured_node, "bfloat16")
    for strategy in ("ddp", "fsdp"):
        point = with_settings(build.train(2), strategy=strategy, lora_rank=8)
        [plain] = predicted_phases(figures, point, 4)
        [packed] = predicted_phases(figures, with_settings(point, weights="nf4"), 4)
        assert packed.compute_s == plain.compute_s
        assert packed.memory_s > plain.memory_s
        assert (packed.communication_s < plain.communication_s) is (strategy == "fsdp")


def test_selective_checkpointing_computes_no_product_again(runs: Any, build: Build) -> None:
    """What lies between the products is moved as often as with whole layers."""
    figures = node_figures(runs.measured_node, "bfloat16")
    kinds = ("none", "selective", "full")
    points = (with_settings(build.train(1), activation_checkpointing=kind) for kind in kinds)
    none, selective, full = (whole(predicted_phases(figures, point, 4)) for point in points)
    assert selective.compute_s == none.compute_s < full.compute_s
    assert none.memory_s < selective.memory_s == full.memory_s


def test_compiled_and_selectively_recomputed_experts_are_not_known(runs: Any, build: Build) -> None:
    """They are refused by name; plain ones are predicted."""
    figures = node_figures(runs.measured_node, "bfloat16")
    mixture = dataclasses.replace(build.train(1), architecture={**build.architecture, "num_local_experts": 4})
    assert predicted_phases(figures, mixture, 4)
    with pytest.raises(UnmeasuredError, match="knows no compiled experts"):
        predicted_phases(figures, with_settings(mixture, compile=True), 4)
    with pytest.raises(UnmeasuredError, match="knows no selective activation_checkpointing of experts"):
        predicted_phases(figures, with_settings(mixture, activation_checkpointing="selective"), 4)


def test_zero_of_both_stages_is_predicted_alike(runs: Any, build: Build) -> None:
    """One pass exchanges as much in stage 1 as in stage 2, which is the default."""
    figures = node_figures(runs.measured_node, "bfloat16")
    zero = with_settings(build.train(2), strategy="deepspeed")
    found = predicted_phases(figures, zero, 4)
    for stage in (1, 2):
        assert predicted_phases(figures, with_settings(zero, zero_stage=stage), 4) == found
    [step], [ddp] = found, predicted_phases(figures, build.train(2), 4)
    assert step.compute_s == ddp.compute_s
    assert step.communication_s > ddp.communication_s


def _slower(point: Point) -> float:
    """Of two ranks with 17 and 15 of 32 layers, the share that the last has of the work, for it has the head."""
    assert point.shape is not None
    layer, head = step_flops_per_token(point.shape, 0, 100, adapters=False)
    assert 17 * layer < 15 * layer + head < 18 * layer
    return (15 * layer + head) / (32 * layer + head)


def test_a_pipeline_has_a_microbatch_for_each_stage_by_default(runs: Any, build: Build) -> None:
    """As the worker does: of two parts one takes what the slower stage does, one what both do."""
    figures = node_figures(runs.measured_node, "bfloat16")
    point = build.train(1)
    unset, two = (
        with_settings(point, strategy="pipeline_parallel", pipeline_parallel=2, microbatches=parts)
        for parts in (None, 2)
    )
    [staged] = predicted_phases(figures, unset, 4)
    assert (staged,) == predicted_phases(figures, two, 4)
    [all_of_it] = predicted_phases(figures, point, 4)
    slower = _slower(point)
    assert staged.compute_s == pytest.approx((slower + 1) / 2 * all_of_it.compute_s)


def test_interleaved_stages_wait_half_as_long(runs: Any, build: Build) -> None:
    """Of 4 samples in 2 parts over two ranks, two stages each: for half of the faster rank's work instead of all."""
    figures = node_figures(runs.measured_node, "bfloat16")
    staged = with_settings(build.train(1), strategy="pipeline_parallel", pipeline_parallel=2, microbatches=2)
    turned = with_settings(staged, schedule="interleaved_1f1b", stages_per_rank=2)
    [one], [two] = (predicted_phases(figures, point, 4) for point in (staged, turned))
    slower = _slower(staged)
    assert two.compute_s == pytest.approx((2 * slower + (1 - slower) / 2) / (2 * slower + 1 - slower) * one.compute_s)
    assert two.communication_s == pytest.approx(2 * one.communication_s)


def test_passes_are_as_many_as_the_samples_need(runs: Any, build: Build) -> None:
    """Set, they stay; ``auto`` follows the samples of a rank. More passes hide less of DDP's sums."""
    figures = node_figures(runs.measured_node, "bfloat16")
    point = build.train(2)
    auto = with_settings(point, global_batch_size=64, grad_accum="auto")
    set_ = with_settings(point, grad_accum=16)
    one = with_settings(point, batch_size_per_gpu=32)
    many, same, single = (whole(predicted_phases(figures, each, 64)) for each in (auto, set_, one))
    assert many == same
    assert many.communication_s > single.communication_s


def test_fsdp_gathers_in_each_pass(runs: Any, build: Build) -> None:
    """Two passes over the same samples compute as long as one, and exchange and sum more."""
    figures = node_figures(runs.measured_node, "bfloat16")
    point = with_settings(build.train(2), strategy="fsdp")
    [one], [two] = (predicted_phases(figures, with_settings(point, grad_accum=passes), 16) for passes in (1, 2))
    assert two.compute_s == one.compute_s
    assert two.memory_s > one.memory_s
    assert two.communication_s > one.communication_s


def test_chunks_are_a_degree_that_grows(runs: Any, build: Build) -> None:
    """Two chunks of every sequence compute the products of half of it; twice two are four."""
    measured = node_figures(runs.measured_node, "bfloat16")
    curve = measured.collectives["all_reduce", 2]
    figures = dataclasses.replace(measured, collectives={("all_reduce", 2): curve, ("all_reduce", 4): curve})
    alone = with_settings(build.train(1), strategy="context_parallel")
    two, four = (with_settings(alone, context_parallel=degree) for degree in (2, 4))
    (whole_,), (half,) = predicted_phases(figures, alone, 4), predicted_phases(figures, two, 4)
    assert 0.5 * whole_.compute_s < half.compute_s < 0.6 * whole_.compute_s
    assert half.communication_s > 0
    assert predicted_phases(figures, two, 4, grown=2) == predicted_phases(figures, four, 4)


def test_a_grown_degree_is_the_one_that_the_point_raises(runs: Any, build: Build) -> None:
    """Eight times two copies are sixteen: as many samples each as an eighth of the grown step."""
    point = Point(
        id=point_id("fit", {}),
        benchmark="fit",
        axes={},
        settings=Train(backend="torch", model="m", global_batch_size=16, sequence_tokens=8, data_parallel=2),
        effort=Effort(),
        architecture=build.architecture,
    )
    figures = node_figures(runs.measured_node, "bfloat16")
    curve = figures.collectives["all_reduce", 2]
    wider = dataclasses.replace(figures, collectives={("all_reduce", 2): curve, ("all_reduce", 16): curve})
    [grown], [wide] = predicted_phases(wider, point, 128, grown=8), predicted_phases(wider, point, 16)
    assert grown.compute_s == pytest.approx(wide.compute_s)
