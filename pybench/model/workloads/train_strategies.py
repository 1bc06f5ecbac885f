"""What each training strategy can be told; a suite that tells one something else is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StrategyName = Literal[
    "ddp",
    "fsdp",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "layer_split",
    "accelerate",
    "deepspeed",
    "torchtune",
    "unsloth",
]

_LORA = ("lora_rank", "lora_alpha", "lora_targets")
_MODEL = ("activation_checkpointing", "compile")
_DDP = ("bucket_cap_mb", "find_unused_parameters", "static_graph", "gradient_as_bucket_view")
_STAGES = ("activation_checkpointing",)


@dataclass(frozen=True, kw_only=True)
class StrategyTraits:
    """One strategy's reach: the degrees it can raise above 1, and the options that mean something to it.

    ``model_types`` are the families whose models it has, ``None`` where it takes any that its backend builds.
    """

    parallel_axes: tuple[str, ...]
    options: tuple[str, ...]
    model_types: tuple[str, ...] | None = None


STRATEGIES: dict[StrategyName, StrategyTraits] = {
    "ddp": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=(*_DDP, *_LORA, *_MODEL, "control_steps"),
    ),
    "fsdp": StrategyTraits(
        parallel_axes=("data_parallel", "tensor_parallel"),
        options=(
            *("reshard_after_forward", "mixed_precision", "cpu_offload", "sequence_parallel", "async_tensor_parallel"),
            *(*_LORA, *_MODEL, "control_steps"),
        ),
    ),
    "tensor_parallel": StrategyTraits(
        parallel_axes=("tensor_parallel",),
        options=("sequence_parallel", "async_tensor_parallel", *_MODEL),
    ),
    "pipeline_parallel": StrategyTraits(
        parallel_axes=("pipeline_parallel", "data_parallel"),
        options=("schedule", "microbatches", "stages_per_rank", *_STAGES),
    ),
    "context_parallel": StrategyTraits(parallel_axes=("context_parallel",), options=_MODEL),
    "layer_split": StrategyTraits(parallel_axes=("pipeline_parallel",), options=_STAGES),
    "accelerate": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=("mixed_precision", *_LORA, *_MODEL, "control_steps"),
    ),
    "deepspeed": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=("zero_stage", "offload_optimizer", "offload_parameters", *_LORA, *_MODEL),
    ),
    "torchtune": StrategyTraits(
        parallel_axes=("data_parallel", "tensor_parallel"),
        options=("reshard_after_forward", "cpu_offload", *_MODEL, "control_steps"),
        model_types=("llama", "qwen2"),
    ),
    "unsloth": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=(*_DDP, *_LORA, "activation_checkpointing", "control_steps"),
        model_types=("llama", "qwen2", "qwen3"),
    ),
}

OPTIONS = frozenset(option for traits in STRATEGIES.values() for option in traits.options)
"""Every setting that some strategy doesn't have."""


def owners(option: str) -> tuple[StrategyName, ...]:
    """Strategies that an option means something to."""
    return tuple(name for name, traits in STRATEGIES.items() if option in traits.options)
