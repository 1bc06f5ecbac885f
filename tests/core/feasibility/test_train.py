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
from pybench.model.workloads.traits import Reason, SkipKind
from tests.build import Build
from tests.builders import TINY, with_settings

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


def reasons(device: DeviceKind = "cuda", shape: DecoderShape = SHAPE, **options: Any) -> list[Reason]:
    usual = {"backend": "torch", "model": "m", "sequence_tokens": 16, "global_batch_size": 8}
    return list(train_reasons(Train(**{**usual, **options}), shape, device))


def missing(found: list[Reason], kind: SkipKind, *facts: str) -> list[str]:
    """Facts that the one reason, of this kind, lacks."""
    ((found_kind, text),) = found
    assert found_kind == kind
    return [fact for fact in facts if fact not in text]


PIPELINE = {"strategy": "pipeline_parallel", "pipeline_parallel": 2}
SPLIT = {"strategy": "tensor_parallel", "tensor_parallel": 2}
INTERLEAVED = {"schedule": "interleaved_1f1b"}


@pytest.mark.parametrize(
    ("options", "kind", "facts"),
    [
        ({"tensor_parallel": 2}, "unsupported", ("ddp", "tensor_parallel", "only data_parallel")),
        ({**SPLIT, "data_parallel": 2}, "unsupported", ("strategy tensor_parallel", "data_parallel")),
        ({"data_parallel": 2, "grad_accum": 3}, "uneven", ("4 samples", "grad_accum 3")),
        ({"data_parallel": 2, "batch_size_per_gpu": 3, "grad_accum": "auto"}, "uneven", ("8 samples", "6")),
        ({**PIPELINE, "microbatches": 3}, "uneven", ("8 samples", "3 microbatches")),
        ({**PIPELINE, "global_batch_size": 1}, "uneven", ("1 sample ", "2 microbatches")),
        ({**PIPELINE, "pipeline_parallel": 4, "microbatches": 2}, "uneven", ("1f1b", "4 stages", "are 2", "gpipe")),
        (
            {**PIPELINE, "pipeline_parallel": 4, "global_batch_size": 9, **INTERLEAVED, "microbatches": 9},
            *("uneven", ("interleaved_1f1b", "9 microbatches", "2 rounds of 4")),
        ),
        ({**PIPELINE, **INTERLEAVED, "stages_per_rank": 3}, "uneven", ("4 layers of m", "6 stages")),
        (
            {"strategy": "fsdp", "data_parallel": 4, "nodes": 8, "hybrid_shard": True},
            *("uneven", ("data_parallel 4", "8 nodes", "hybrid_shard")),
        ),
        ({"strategy": "context_parallel", "context_parallel": 3}, "uneven", ("16 tokens", "context_parallel 3")),
        ({"strategy": "fsdp", "tensor_parallel": 2, "lora_rank": 8}, "unsupported", ("adapters", "tensor_parallel")),
        ({"strategy": "fsdp", "context_parallel": 2, "tensor_parallel": 2}, "settings", ("over context_parallel",)),
        ({**SPLIT, "sequence_parallel": True, "sequence_tokens": 15}, "uneven", ("15 tokens", "tensor_parallel 2")),
    ],
)
def test_what_does_not_come_out_even(options: dict[str, Any], kind: SkipKind, facts: tuple[str, ...]) -> None:
    """Named with both numbers."""
    assert missing(reasons(**options), kind, *facts) == []


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
    assert reasons(**options) == []


@pytest.mark.parametrize(
    "options", [SPLIT, PIPELINE, {"strategy": "layer_split", "pipeline_parallel": 2}, {"strategy": "torchtune"}]
)
def test_a_tied_head_can_not_be_split(options: dict[str, Any]) -> None:
    """It would train two weights where the model has one."""
    tied = dataclasses.replace(SHAPE, tied_embeddings=True)
    assert missing(reasons(shape=tied, **options), "unsupported", "m ties its head") == []
    assert reasons(shape=tied) == []


def test_a_librarys_own_models() -> None:
    """Known before anything runs."""
    gemma = dataclasses.replace(SHAPE, model_type="gemma3_text")
    facts = ("torchtune", "llama and qwen2 only", "gemma3_text")
    assert missing(reasons(shape=gemma, strategy="torchtune"), "unsupported", *facts) == []
    assert reasons(strategy="torchtune", data_parallel=2, tensor_parallel=2) == []


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"strategy": "fsdp", "cpu_offload": True}, "cpu_offload"),
        ({"strategy": "deepspeed", "offload_optimizer": True}, "offload_optimizer"),
        ({**SPLIT, "sequence_parallel": True, "async_tensor_parallel": True}, "async_tensor_parallel"),
        ({"strategy": "torchtune", "cpu_offload": True, "data_parallel": 2}, "cpu_offload"),
        (
            {"strategy": "torchtune", "activation_offload": True, "activation_checkpointing": "full"},
            "activation_offload",
        ),
        ({"global_batch_size": None, "batch_size_per_gpu": "auto"}, "batch_size_per_gpu = 'auto'"),
    ],
)
def test_what_only_a_gpu_has(options: dict[str, Any], option: str) -> None:
    """On a CPU it would show nothing."""
    assert missing(reasons("cpu", **options), "device", option) == []
    assert reasons("cuda", **options) == []


def test_torchtune_offloads_what_recomputed_layers_keep() -> None:
    """Its recipes refuse the one without the other."""
    given: dict[str, Any] = {"strategy": "torchtune", "activation_offload": True}
    assert missing(reasons(**given), "settings", "set activation_checkpointing = 'full'") == []
    assert reasons(**given, activation_checkpointing="full") == []


@pytest.mark.parametrize("degrees", [{}, {"tensor_parallel": 2}])
def test_torchtune_offloads_what_fsdp_splits(degrees: dict[str, Any]) -> None:
    """Its recipes give nothing else to host memory: on one data-parallel rank the setting would change nothing."""
    given: dict[str, Any] = {"strategy": "torchtune", "cpu_offload": True, **degrees}
    assert missing(reasons(**given), "settings", "data_parallel of 2", "cpu_offload") == []
    assert reasons(**given, data_parallel=2) == []


@pytest.mark.parametrize("targets", [None, "query_value", "attention", "all_linear"])
def test_a_fused_projection_gets_one_adapter(targets: Any) -> None:
    """Queries and values alone can't have theirs."""
    phi = dataclasses.replace(SHAPE, model_type="phi3")
    found = reasons(shape=phi, lora_rank=4, lora_targets=targets)
    if targets in {None, "query_value"}:
        assert missing(found, "unsupported", "lora_targets = 'query_value'", "use 'attention'") == []
    else:
        assert found == []
    assert reasons(shape=phi) == []


MIXTURE = dataclasses.replace(SHAPE, model_type="gpt_oss", num_experts=8, active_experts=2)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"lora_targets": "all_linear"}, ("lora_targets = 'all_linear'", "experts", "use 'attention'")),
        ({"lora_targets": "attention", "weights": "nf4"}, ("weights = 'nf4'", "experts", "use 'dtype'")),
    ],
)
def test_experts_are_no_linear_layers(options: dict[str, Any], facts: tuple[str, ...]) -> None:
    """Adapters and packing that would leave out nine tenths of the weights without a word; a dense model takes both."""
    assert missing(reasons(shape=MIXTURE, lora_rank=4, **options), "unsupported", *facts) == []
    assert reasons(lora_rank=4, **options) == []
    assert reasons(shape=MIXTURE, lora_rank=4, lora_targets="attention") == []


def test_experts_are_not_split_over_tensor_parallel_ranks() -> None:
    """A split of attention alone would be no tensor parallelism; the reason names the backend."""
    shape = {**TINY, "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2}
    point = Build().train(1)
    split = with_settings(point, tensor_parallel=2, strategy="tensor_parallel")
    split = dataclasses.replace(split, architecture=shape)
    assert missing([*infeasible(split, Devices("cuda", 2))], "unsupported", "backend torch", "experts of gpt_oss") == []
