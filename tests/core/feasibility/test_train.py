"""Training points that can't run, and why."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.feasibility import infeasible
from pybench.core.train_feasibility import train_reasons
from pybench.model.decoder_shape import DecoderShape
from pybench.model.machine import DeviceKind, Devices
from pybench.model.workloads.train import Train
from tests.build import Build
from tests.builders import TINY, with_settings
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.feasibility.train")

SHAPE = DecoderShape(
    model_type="llama",
    layers=4,
    hidden=64,
    intermediate=128,
    heads=4,
    key_value_heads=4,
    head_width=16,
    vocabulary=256,
)


def reasons(device: DeviceKind = "cuda", shape: DecoderShape = SHAPE, **options: Any) -> str:
    usual = {"backend": "torch", "model": "m", "sequence_tokens": 16, "global_batch_size": 8}
    return "; ".join(train_reasons(Train(**{**usual, **options}), shape, device))


PIPELINE = {"strategy": "pipeline_parallel", "pipeline_parallel": 2}
SPLIT = {"strategy": "tensor_parallel", "tensor_parallel": 2}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tensor_parallel": 2}, "strategy ddp has no tensor_parallel above 1, only data_parallel"),
        ({**SPLIT, "data_parallel": 2}, "strategy tensor_parallel has no data_parallel above 1"),
        ({"data_parallel": 2, "grad_accum": 3}, "4 samples of a rank can't be split over grad_accum 3"),
        (
            {"data_parallel": 2, "batch_size_per_gpu": 3, "grad_accum": "auto"},
            "8 samples in a step are no multiple of the 6 that all ranks take at once",
        ),
        ({**PIPELINE, "microbatches": 3}, "8 samples of a rank can't be split over 3 microbatches"),
        ({**PIPELINE, "global_batch_size": 1}, "1 sample of a rank can't be split over 2 microbatches"),
        (
            {**PIPELINE, "pipeline_parallel": 4, "microbatches": 2},
            "schedule 1f1b needs a microbatch for each of 4 stages, and there are 2: gpipe takes fewer",
        ),
        (
            {
                **PIPELINE,
                "pipeline_parallel": 4,
                "global_batch_size": 9,
                "schedule": "interleaved_1f1b",
                "microbatches": 9,
            },
            "interleaved_1f1b can't take 9 microbatches in 2 rounds of 4 or more: set microbatches",
        ),
        (
            {**PIPELINE, "schedule": "interleaved_1f1b", "stages_per_rank": 3},
            "4 layers of m are fewer than 6 stages",
        ),
        (
            {"strategy": "fsdp", "data_parallel": 4, "nodes": 8, "hybrid_shard": True},
            "data_parallel 4 can't be split over 8 nodes (hybrid_shard)",
        ),
        (
            {"strategy": "context_parallel", "context_parallel": 3},
            "16 tokens in a sequence can't be split over context_parallel 3",
        ),
        (
            {"strategy": "fsdp", "tensor_parallel": 2, "lora_rank": 8},
            "layers with adapters can't be split over tensor_parallel: use data_parallel",
        ),
        (
            {"strategy": "fsdp", "context_parallel": 2, "tensor_parallel": 2},
            "layers split over tensor_parallel don't attend over context_parallel: give one of them",
        ),
        (
            {**SPLIT, "sequence_parallel": True, "sequence_tokens": 15},
            "15 tokens in a sequence can't be split over tensor_parallel 2",
        ),
    ],
)
def test_what_does_not_come_out_even(options: dict[str, Any], reason: str) -> None:
    """Named with both numbers."""
    assert reason in reasons(**options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_parallel": 2, "grad_accum": 4},
        {"data_parallel": 2, "batch_size_per_gpu": 2, "grad_accum": "auto"},
        {"data_parallel": 2, "batch_size_per_gpu": "auto", "grad_accum": "auto"},
        {"global_batch_size": None, "batch_size_per_gpu": "auto"},
        {**PIPELINE, "data_parallel": 2},
        {"strategy": "fsdp", "tensor_parallel": 2, "data_parallel": 2, "cpu_offload": True},
        # The split itself is the workload's check, which names it.
        {"data_parallel": 3},
    ],
)
def test_what_can_run(options: dict[str, Any]) -> None:
    """No reason."""
    assert reasons(**options) == ""


@pytest.mark.parametrize(
    "options", [SPLIT, PIPELINE, {"strategy": "layer_split", "pipeline_parallel": 2}, {"strategy": "torchtune"}]
)
def test_a_tied_head_can_not_be_split(options: dict[str, Any]) -> None:
    """It would train two weights where the model has one."""
    tied = dataclasses.replace(SHAPE, tied_embeddings=True)
    assert "m ties its head to its embedding" in reasons(shape=tied, **options)
    assert reasons(shape=tied) == ""


def test_a_librarys_own_models() -> None:
    """Known before anything runs."""
    gemma = dataclasses.replace(SHAPE, model_type="gemma3_text")
    reason = "strategy torchtune has models of type llama and qwen2 only, not gemma3_text"
    assert reasons(shape=gemma, strategy="torchtune") == reason
    assert reasons(strategy="torchtune", data_parallel=2, tensor_parallel=2) == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": "fsdp", "cpu_offload": True}, "cpu_offload needs GPUs"),
        ({"strategy": "deepspeed", "offload_optimizer": True}, "offload_optimizer needs GPUs"),
        ({**SPLIT, "sequence_parallel": True, "async_tensor_parallel": True}, "async_tensor_parallel needs GPUs"),
        ({"strategy": "torchtune", "cpu_offload": True, "data_parallel": 2}, "cpu_offload needs GPUs"),
        (
            {"strategy": "torchtune", "activation_offload": True, "activation_checkpointing": "full"},
            "activation_offload needs GPUs",
        ),
        ({"global_batch_size": None, "batch_size_per_gpu": "auto"}, "'auto' needs a GPU's memory limit"),
    ],
)
def test_what_only_a_gpu_has(options: dict[str, Any], reason: str) -> None:
    """On a CPU it would show nothing."""
    assert reason in reasons("cpu", **options)
    assert reasons("cuda", **options) == ""


def test_torchtune_offloads_what_recomputed_layers_keep() -> None:
    """Its recipes refuse the one without the other."""
    given: dict[str, Any] = {"strategy": "torchtune", "activation_offload": True}
    assert reasons(**given) == SENTENCES["torchtune_offloads_what_recomputed"]
    assert reasons(**given, activation_checkpointing="full") == ""


@pytest.mark.parametrize("degrees", [{}, {"tensor_parallel": 2}])
def test_torchtune_offloads_what_fsdp_splits(degrees: dict[str, Any]) -> None:
    """Its recipes give nothing else to host memory: on one data-parallel rank the setting would change nothing."""
    given: dict[str, Any] = {"strategy": "torchtune", "cpu_offload": True, **degrees}
    assert reasons(**given).startswith("torchtune leaves to host memory what FSDP splits: take data_parallel of 2")
    assert reasons(**given, data_parallel=2) == ""


@pytest.mark.parametrize("targets", [None, "query_value", "attention", "all_linear"])
def test_a_fused_projection_gets_one_adapter(targets: Any) -> None:
    """Queries and values alone can't have theirs."""
    phi = dataclasses.replace(SHAPE, model_type="phi3")
    refused = "lora_targets = 'query_value': m has them in one projection with keys; use 'attention'"
    assert reasons(shape=phi, lora_rank=4, lora_targets=targets) == (
        refused if targets in {None, "query_value"} else ""
    )
    assert reasons(shape=phi) == ""


MIXTURE = dataclasses.replace(SHAPE, model_type="gpt_oss", num_experts=8, active_experts=2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"lora_targets": "all_linear"}, "experts, which get no adapters; use 'attention'"),
        ({"lora_targets": "attention", "weights": "nf4"}, "packs linear layers, and the experts of m are none"),
    ],
)
def test_experts_are_no_linear_layers(options: dict[str, Any], reason: str) -> None:
    """Adapters and packing that would leave out nine tenths of the weights without a word; a dense model takes both."""
    assert reason in reasons(shape=MIXTURE, lora_rank=4, **options)
    assert reasons(lora_rank=4, **options) == ""
    assert reasons(shape=MIXTURE, lora_rank=4, lora_targets="attention") == ""


def test_experts_are_not_split_over_tensor_parallel_ranks() -> None:
    """A split of attention alone would be no tensor parallelism; the reason names the backend."""
    shape = {**TINY, "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2}
    point = Build().train(1)
    split = with_settings(point, tensor_parallel=2, strategy="tensor_parallel")
    split = dataclasses.replace(split, architecture=shape)
    assert infeasible(split, Devices("cuda", 2)) == SENTENCES["experts_are_not_split_over_tensor"]
