"""The training strategies: the degrees and options that each has, and what it needs."""

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
Sharing = Literal["ddp", "fsdp", "zero"]

_LORA = ("lora_rank", "lora_alpha", "lora_targets", "lora_dropout")
_PACKED = ("weights",)
_OWN_MODEL = (*_PACKED, "loss_chunk_tokens")
_UPDATE = ("optimizer", "max_grad_norm")
_MODEL = ("activation_checkpointing", "compile")
_EVALUATION = (
    *("evaluation_every_steps", "evaluation_method", "evaluation_batches", "evaluation_output_tokens"),
    "evaluation_accumulation_steps",
)
_DDP = (*("bucket_cap_mb", "find_unused_parameters", "broadcast_buffers", "gradient_as_bucket_view"),)
_STAGES = ("activation_checkpointing",)


@dataclass(frozen=True, kw_only=True)
class StrategyTraits:
    """Every rule of one strategy: the degrees it can raise above 1, and the options that mean something to it.

    ``model_types`` are the families whose models it has, ``None`` where it takes any that its backend builds.
    ``own_optimizer``: it brings its own. ``untied_head``: it takes no model whose
    head is its embedding, even on one GPU; splitting a model over stages or tensor-parallel ranks never does.
    ``has_microbatches``: it cuts a rank's batch into parts that follow each other through the stages.
    ``sharing``: how data-parallel ranks share weights and gradients in the prediction of step times; ``None`` where
    there is no prediction. ``exchanges_once``: its ranks exchange gradients once a step,
    however many passes it has. ``fully_shards``: ranks hold parts of weights, gradients and states, and gather a layer
    at a time. ``has_buckets``: DDP averages its gradients, in buckets beside them. ``splits_vocabulary``: no
    tensor-parallel rank has all logits when the loss is computed.
    """

    parallel_axes: tuple[str, ...]
    options: tuple[str, ...]
    model_types: tuple[str, ...] | None = None
    own_optimizer: bool = False
    untied_head: bool = False
    has_microbatches: bool = False
    sharing: Sharing | None = None
    exchanges_once: bool = False
    fully_shards: bool = False
    has_buckets: bool = False
    splits_vocabulary: bool = False

    @property
    def has_stages(self) -> bool:
        """Whether layers lie on several GPUs, which wait for each other."""
        return "pipeline_parallel" in self.parallel_axes


STRATEGIES: dict[StrategyName, StrategyTraits] = {
    "ddp": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=(*_DDP, *_LORA, *_OWN_MODEL, *_UPDATE, *_MODEL, *_EVALUATION, "control_steps"),
        sharing="ddp",
        exchanges_once=True,
        has_buckets=True,
    ),
    "fsdp": StrategyTraits(
        parallel_axes=("data_parallel", "tensor_parallel", "context_parallel"),
        options=(
            *("reshard_after_forward", "mixed_precision", "cpu_offload", "sequence_parallel", "async_tensor_parallel"),
            "hybrid_shard",
            *(*_LORA, *_OWN_MODEL, *_UPDATE, *_MODEL, *_EVALUATION, "control_steps"),
        ),
        sharing="fsdp",
        exchanges_once=True,
        fully_shards=True,
        splits_vocabulary=True,
    ),
    "tensor_parallel": StrategyTraits(
        parallel_axes=("tensor_parallel",),
        options=("sequence_parallel", "async_tensor_parallel", *_UPDATE, *_MODEL),
        sharing="ddp",
        exchanges_once=True,
        splits_vocabulary=True,
    ),
    "pipeline_parallel": StrategyTraits(
        parallel_axes=("pipeline_parallel", "data_parallel"),
        options=("schedule", "microbatches", "stages_per_rank", *_STAGES),
        has_microbatches=True,
        sharing="ddp",
    ),
    "context_parallel": StrategyTraits(
        parallel_axes=("context_parallel",),
        options=(*_UPDATE, *_MODEL),
        sharing="ddp",
        exchanges_once=True,
        has_buckets=True,
    ),
    "layer_split": StrategyTraits(parallel_axes=("pipeline_parallel",), options=_STAGES, sharing="ddp"),
    "accelerate": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=("mixed_precision", *_LORA, *_OWN_MODEL, *_UPDATE, *_MODEL, *_EVALUATION, "control_steps"),
        sharing="ddp",
        exchanges_once=True,
        has_buckets=True,
    ),
    "deepspeed": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=(
            *("zero_stage", "offload_optimizer", "offload_parameters", "deepspeed_config", "max_grad_norm"),
            *(*_LORA, *_MODEL),
        ),
        own_optimizer=True,
        sharing="zero",
    ),
    "torchtune": StrategyTraits(
        parallel_axes=("data_parallel", "tensor_parallel"),
        options=(
            *("reshard_after_forward", "cpu_offload", "activation_offload"),
            *(*_UPDATE, *_MODEL, "control_steps"),
        ),
        model_types=("llama", "qwen2"),
        untied_head=True,
        fully_shards=True,
    ),
    "unsloth": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=(*_DDP, *_LORA, *_PACKED, *_UPDATE, "activation_checkpointing", "control_steps"),
        # On GPUs it replaces the experts of gpt_oss, whose weights would need other names.
        model_types=("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "phi3"),
        has_buckets=True,
    ),
}

OPTIONS = frozenset(option for traits in STRATEGIES.values() for option in traits.options)
"""Every setting that some strategy doesn't have."""


def owners(option: str) -> tuple[StrategyName, ...]:
    """Strategies that an option means something to."""
    return tuple(name for name, traits in STRATEGIES.items() if option in traits.options)
