"""Predicted phases from settings and rates: refused work, and each kind of parallelism against one GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.explain.node import node_rates
from pybench.explain.predict import predicted_phases
from pybench.explain.step_time import NodeRates, UnmeasuredError
from tests.build import Build
from tests.builders import with_settings


@pytest.fixture
def rates(runs: Any) -> NodeRates:
    """The node's rates, with its all-reduce on 2, 4 and 16 GPUs."""
    measured = node_rates(runs.measured_node, "bfloat16")
    curve = measured.collectives["all_reduce", 2]
    return dataclasses.replace(measured, collectives={("all_reduce", count): curve for count in (2, 4, 16)})


def test_unknown_work_is_refused_by_name(runs: Any, build: Build, rates: NodeRates) -> None:
    """An unknown strategy, chunks over split weights, and a point without a model."""
    train = build.train(2)
    for point, named in (
        (with_settings(train, strategy="torchtune"), "strategy torchtune"),
        (with_settings(train, context_parallel=2), "context_parallel"),
        (runs.node_points[0], "matmul"),
    ):
        with pytest.raises(UnmeasuredError, match=f"knows no {named}"):
            predicted_phases(rates, point, 4)


def test_accelerate_is_predicted_as_ddp(build: Build, rates: NodeRates) -> None:
    """Both exchange the same buckets."""
    both = build.train(2)
    accelerate = with_settings(both, strategy="accelerate")
    assert predicted_phases(rates, accelerate, 4) == predicted_phases(rates, both, 4)


def test_layer_split_computes_as_long_as_one_gpu(build: Build, rates: NodeRates) -> None:
    """Its stages work in turn, and each sends its activations."""
    alone = build.train(1)
    layers = with_settings(alone, strategy="layer_split", pipeline_parallel=2)
    (step,), (split,) = predicted_phases(rates, alone, 4), predicted_phases(rates, layers, 4)
    assert split.compute_s == pytest.approx(step.compute_s)
    assert split.communication_s > 0


@pytest.mark.parametrize("strategy", ["context_parallel", "layer_split"])
def test_a_lone_rank_is_predicted_as_ddp(build: Build, rates: NodeRates, strategy: str) -> None:
    """On one GPU the strategies do the same work."""
    alone = build.train(1)
    assert predicted_phases(rates, with_settings(alone, strategy=strategy), 4) == predicted_phases(rates, alone, 4)


def test_microbatches_shrink_the_bubble(build: Build, rates: NodeRates) -> None:
    """One microbatch over two even stages computes as long as one GPU; with 16 it is (16 + 1) / 32 of that."""
    alone = build.train(1)
    stages = with_settings(alone, strategy="pipeline_parallel", pipeline_parallel=2, microbatches=16)
    (step,), (split,) = predicted_phases(rates, alone, 16), predicted_phases(rates, stages, 16)
    assert 0.5 < split.compute_s / step.compute_s < 0.65


def test_fsdp_exchanges_more_than_ddp_and_updates_half(build: Build, rates: NodeRates) -> None:
    """Two ranks gather the weights twice, and each updates its half without copies into buckets."""
    ddp = build.train(2)
    (copies,), (sharded,) = (predicted_phases(rates, with_settings(ddp, strategy=name), 4) for name in ("ddp", "fsdp"))
    assert sharded.communication_s > copies.communication_s
    assert sharded.memory_s < 0.5 * copies.memory_s


def test_recomputed_layers_compute_a_third_more(build: Build, rates: NodeRates) -> None:
    """Forward runs twice: 4/3 of the products of the layers."""
    alone = build.train(1)
    full, none = (with_settings(alone, activation_checkpointing=name) for name in ("full", "none"))
    (longer,), (step,) = predicted_phases(rates, full, 4), predicted_phases(rates, none, 4)
    assert 1.25 < longer.compute_s / step.compute_s < 4 / 3


def test_fused_norms_read_less_memory(build: Build, rates: NodeRates) -> None:
    """VLLM fuses norms, plain PyTorch runs them kernel by kernel."""
    plain, fused = (predicted_phases(rates, build.generate(1, backend=name), 4) for name in ("torch", "vllm"))
    assert sum(phase.memory_s for phase in plain) > sum(phase.memory_s for phase in fused)
    assert [phase.compute_s for phase in plain] == [phase.compute_s for phase in fused]


def test_chunks_share_a_sequence(build: Build, rates: NodeRates) -> None:
    """Two chunks compute the products of half of each sequence."""
    alone = with_settings(build.train(1), strategy="context_parallel")
    two = with_settings(alone, context_parallel=2)
    (step,), (half,) = predicted_phases(rates, alone, 4), predicted_phases(rates, two, 4)
    assert 0.5 * step.compute_s < half.compute_s < 0.6 * step.compute_s
    assert half.communication_s > 0
