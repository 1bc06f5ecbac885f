"""Turns: impossible combinations are refused with the reason; the settings of engine and trainer."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.model.backend import BACKENDS
from pybench.model.workloads.traits import GivenSettings
from pybench.model.workloads.turn import Turn, turn_rules

SHARED: dict[str, Any] = {"topology": "shared", "batch_size": 8}
LORA: dict[str, Any] = {**SHARED, "lora_rank": 8}
DECOUPLED: dict[str, Any] = {**LORA, "topology": "decoupled", "tensor_parallel": 4, "handover": "file"}
FULL: dict[str, Any] = {**SHARED, "topology": "full", "strategy": "fsdp", "tensor_parallel": 4, "sleep_level": 2}


@pytest.mark.parametrize(
    "given",
    [
        SHARED,
        LORA,
        {**LORA, "strategy": "unsloth", "backend": "vllm"},
        {**LORA, "weights": "nf4"},
        {**DECOUPLED, "weights": "nf4"},
        DECOUPLED,
        {**DECOUPLED, "strategy": "unsloth", "backend": "vllm"},
        FULL,
        {**FULL, "strategy": "torchtune", "activation_offload": True},
        {**FULL, "handover": "file"},
        {**FULL, "train_tensor_parallel": 2},
        {**FULL, "strategy": "tensor_parallel", "train_tensor_parallel": 4},
        {**FULL, "strategy": "torchtune", "train_tensor_parallel": 2},
        {**FULL, "train_context_parallel": 2},
        {**FULL, "strategy": "context_parallel", "train_context_parallel": 4},
        {**SHARED, "loss": "grpo", "group_size": 4, "max_grad_norm": 0.1},
        {**SHARED, "handover": "file", "async_weight_syncing": True},
    ],
)
def test_what_works_is_taken(given: dict[str, Any]) -> None:
    """Every topology, handover and loss in a combination that runs."""
    assert list(turn_rules(GivenSettings(given, {}))) == []


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        ({**LORA, "sleep_level": 2}, "sleep_level", "level 2 discards the base weights"),
        ({**SHARED, "tensor_parallel": 2}, "tensor_parallel", "'shared' is one GPU"),
        ({**FULL, "train_tensor_parallel": 3}, "train_tensor_parallel", "4 GPUs can't be split over"),
        ({**DECOUPLED, "train_tensor_parallel": 2}, "train_tensor_parallel", "only topology 'full' trains"),
        ({**FULL, "strategy": "tensor_parallel"}, "train_tensor_parallel", "over all 4 GPUs"),
        ({**FULL, "lora_rank": 8, "sleep_level": 1}, "lora_rank", "'full' trains all weights"),
        ({**DECOUPLED, "lora_rank": None}, "topology", "set lora_rank"),
        ({**DECOUPLED, "handover": "direct"}, "handover", "by 'file' only"),
        ({**SHARED, "strategy": "deepspeed"}, "strategy", "with strategy ddp or unsloth, not deepspeed"),
        ({**SHARED, "strategy": "torchtune"}, "strategy", "with strategy ddp or unsloth, not torchtune"),
        (
            {**FULL, "strategy": "torchtune", "train_context_parallel": 2},
            "train_context_parallel",
            "strategy torchtune does not split sequences; take strategy fsdp",
        ),
        (
            {**LORA, "strategy": "unsloth", "backend": "torch", "handover": "direct"},
            "strategy",
            "take backend vllm",
        ),
        (
            {**FULL, "strategy": "unsloth"},
            "strategy",
            "with strategy fsdp, tensor_parallel, context_parallel or torchtune, not unsloth",
        ),
        ({**FULL, "strategy": "context_parallel"}, "train_context_parallel", "splits sequences over all 4 GPUs"),
        ({**FULL, "train_context_parallel": 3}, "train_context_parallel", "4 GPUs can't be split over"),
        ({**SHARED, "train_context_parallel": 2}, "train_context_parallel", "only topology 'full' trains"),
        (
            {**FULL, "strategy": "tensor_parallel", "train_tensor_parallel": 4, "train_context_parallel": 2},
            "train_context_parallel",
            "does not split sequences",
        ),
        (
            {**FULL, "train_context_parallel": 2, "prompt_tokens": 8, "output_tokens": 5},
            "train_context_parallel",
            "13 tokens in a sequence can't be split over train_context_parallel 2",
        ),
        (
            {**FULL, "train_tensor_parallel": 2, "train_context_parallel": 2},
            "train_context_parallel",
            "give one of them",
        ),
        ({**SHARED, "loss": "grpo"}, "loss", "set group_size"),
        ({**SHARED, "loss": "grpo", "group_size": 3}, "group_size", "8 sequences can't be split into groups of 3"),
        ({**SHARED, "group_size": 4}, "group_size", "needs loss = 'grpo'"),
        ({**SHARED, "lora_alpha": 4}, "lora_alpha", "needs lora_rank"),
        ({**SHARED, "weights": "nf4"}, "weights", "needs lora_rank"),
        *(
            ({**given, "activation_checkpointing": "selective"}, "strategy", "recomputes whole layers")
            for given in ({**LORA, "strategy": "unsloth"}, {**FULL, "strategy": "torchtune"})
        ),
        (
            {**LORA, "strategy": "unsloth", "activation_offload": True},
            "activation_offload",
            "only strategy torchtune has it",
        ),
        (
            {**FULL, "strategy": "tensor_parallel", "train_tensor_parallel": 4, "activation_offload": True},
            "activation_offload",
            "only strategy torchtune has it",
        ),
        ({**SHARED, "async_weight_syncing": True}, "async_weight_syncing", "only handover = 'file'"),
        (
            {**SHARED, "async_weight_syncing": True, "handover": "file", "sleep_level": 2},
            "async_weight_syncing",
            "no weights to generate with",
        ),
    ],
)
def test_what_can_not_work_is_refused_with_its_reason(given: dict[str, Any], key: str, reason: str) -> None:
    """Once, at the setting to change."""
    [breach] = turn_rules(GivenSettings(given, {}))
    assert breach.key == key
    assert reason in breach.message


def test_a_swept_setting_is_refused_for_any_of_its_values() -> None:
    """Level 2 of three levels does not go with adapters."""
    [breach] = turn_rules(GivenSettings(LORA, {"sleep_level": (0, 1, 2)}))
    assert breach.key == "sleep_level"


def test_a_number_of_gpus_may_be_a_word() -> None:
    """The machine decides it later: the plan holds the point against the rules again."""
    fixed = {name: value for name, value in FULL.items() if name != "tensor_parallel"}
    assert list(turn_rules(GivenSettings(fixed, {"tensor_parallel": (2, "all")}))) == []


def _turn(**given: Any) -> Turn:
    return Turn(backend="vllm", model="m", prompt_tokens=10, output_tokens=6, **given)


def test_processes_and_gpus_of_each_topology() -> None:
    """An engine drives its own GPUs; a trainer on several GPUs has a rank on each."""
    vllm, torch = BACKENDS["vllm"], BACKENDS["torch"]
    shared, decoupled, full = _turn(**SHARED), _turn(**DECOUPLED), _turn(**FULL)
    assert [turn.num_gpus for turn in (shared, decoupled, full)] == [1, 4, 4]
    assert [vllm.num_processes(turn) for turn in (shared, decoupled, full)] == [1, 1, 4]
    assert [torch.num_processes(turn) for turn in (shared, decoupled, full)] == [1, 4, 4]
    assert [turn.num_processes for turn in (shared, decoupled, full)] == [1, 2, 1]


def test_the_trainers_step_is_the_engines_batch() -> None:
    """8 sequences of 16 tokens over 2 replicas of 2 ranks: 4 each, two at a time, in two passes."""
    training = _turn(**{**FULL, "train_tensor_parallel": 2, "batch_size_per_gpu": 2}).training
    assert (training.data_parallel, training.tensor_parallel) == (2, 2)
    assert (training.effective_batch_size, training.micro_batch_size, training.num_passes) == (8, 2, 2)
    assert training.sequence_tokens == 16
    training = _turn(**{**FULL, "train_context_parallel": 4}).training
    assert (training.data_parallel, training.context_parallel, training.num_passes) == (1, 4, 8)
