"""The training strategies and the rules that join several settings of a training benchmark."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Literal, cast

from pybench.model.workloads.settings import AUTO, NODES, REST
from pybench.model.workloads.traits import Breach, GivenSettings, Need, unmet_needs

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

_LORA = ("lora_rank", "lora_alpha", "lora_targets", "lora_dropout")
_PACKED = ("weights",)
_OWN_MODEL = (*_PACKED, "loss_chunk_tokens")
_UPDATE = ("optimizer", "max_grad_norm")
_MODEL = ("activation_checkpointing", "compile")
_EVALUATION = (
    *("evaluation_every_steps", "evaluation_method", "evaluation_batches", "evaluation_output_tokens"),
    "evaluation_accumulation_steps",
)
_DDP = ("bucket_cap_mb", "find_unused_parameters", "broadcast_buffers", "gradient_as_bucket_view")
_STAGES = ("activation_checkpointing",)


@dataclass(frozen=True, kw_only=True)
class StrategyTraits:
    """Every rule of one strategy: the degrees it can raise above 1, and the options that mean something to it.

    ``model_types`` are the families whose models it has, ``None`` where it takes any that its backend builds.
    ``own_optimizer``: it brings its own. ``untied_head``: it takes no model whose head is its embedding, even on one
    GPU; splitting a model over stages or tensor-parallel ranks never does. ``has_microbatches``: it cuts a rank's batch
    into parts that follow each other through the stages. ``sharing``: how data-parallel ranks share weights and
    gradients in the prediction of step times; ``None`` where there is no prediction. ``exchanges_once``: its ranks
    exchange gradients once a step, however many passes it has. ``fully_shards``: ranks hold parts of weights, gradients
    and states, and gather a layer at a time. ``has_buckets``: DDP averages its gradients, in buckets beside them.
    ``splits_vocabulary``: no tensor-parallel rank has all logits when the loss is computed.
    """

    parallel_axes: tuple[str, ...]
    options: tuple[str, ...]
    model_types: tuple[str, ...] | None = None
    own_optimizer: bool = False
    untied_head: bool = False
    has_microbatches: bool = False
    sharing: Literal["ddp", "fsdp", "zero"] | None = "ddp"
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
        exchanges_once=True,
        splits_vocabulary=True,
    ),
    "pipeline_parallel": StrategyTraits(
        parallel_axes=("pipeline_parallel", "data_parallel"),
        options=("schedule", "microbatches", "stages_per_rank", *_STAGES),
        has_microbatches=True,
    ),
    "context_parallel": StrategyTraits(
        parallel_axes=("context_parallel",), options=(*_UPDATE, *_MODEL), exchanges_once=True, has_buckets=True
    ),
    "layer_split": StrategyTraits(parallel_axes=("pipeline_parallel",), options=_STAGES),
    "accelerate": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=("mixed_precision", *_LORA, *_OWN_MODEL, *_UPDATE, *_MODEL, *_EVALUATION, "control_steps"),
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
        sharing=None,
        fully_shards=True,
    ),
    "unsloth": StrategyTraits(
        parallel_axes=("data_parallel",),
        options=(*_DDP, *_LORA, *_PACKED, *_UPDATE, "activation_checkpointing", "control_steps"),
        # On GPUs it replaces the experts of gpt_oss, whose weights would need other names.
        model_types=("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "phi3"),
        sharing=None,
        has_buckets=True,
    ),
}

OPTIONS = frozenset(option for traits in STRATEGIES.values() for option in traits.options)
"""Every setting that some strategy doesn't have."""


def owners(option: str) -> tuple[StrategyName, ...]:
    """Strategies that an option means something to."""
    return tuple(name for name, traits in STRATEGIES.items() if option in traits.options)


_BATCHES = ("global_batch_size", "batch_size_per_gpu")
_BATCH_OF_SCALING = {"strong": "global_batch_size", "weak": "batch_size_per_gpu"}
DEFAULT_OUTPUT_TOKENS = 64
"""Tokens of an answer that an evaluation decodes."""
_SPLIT_STATES = "splits weights and states, which bitsandbytes' optimizers can't take: optimizer = 'adamw' or 'sgd'"
_DECODED = "belongs to evaluation_method = 'generation'"
_NOT_ADAMW = ("adamw_8bit", "paged_adamw", "paged_adamw_8bit", "sgd")
_ONE = (None, 1)
_OFF = (None, False)
_ON = (True,)
_WHOLE = (None, "none", "full")

NEEDS: tuple[Need, ...] = (
    Need("lora_alpha", "lora_rank"),
    Need("lora_targets", "lora_rank"),
    Need("lora_dropout", "lora_rank"),
    Need("weights", "lora_rank"),
    Need("schedule", "stages_per_rank", _ONE, "gpipe has one stage for each rank", ("gpipe",)),
    Need("schedule", "stages_per_rank", _ONE, "1f1b has one stage for each rank", ("1f1b",)),
    Need(
        *("stages_per_rank", "schedule", ("gpipe", "1f1b", "interleaved_1f1b")),
        *("more than one needs schedule = 'interleaved_1f1b'", range(2, 1024)),
    ),
    Need("async_tensor_parallel", "sequence_parallel", _ON, "needs sequence_parallel = true", _ON),
    Need("async_tensor_parallel", "compile", _ON, "needs compile = true", _ON),
    Need("optimizer", "fused_adamw", (None,), "fused_adamw belongs to optimizer = 'adamw': remove it", _NOT_ADAMW),
    Need(
        *("max_grad_norm", "cpu_offload", _OFF),
        "can't join the norms of gradients in host memory over the GPUs' process group: remove cpu_offload",
    ),
    Need("mixed_precision", "dtype", ("float32",), "computes over float32 weights: set dtype = 'float32'"),
    Need("offload_parameters", "zero_stage", (3,), "needs zero_stage = 3: only there weights are split", _ON),
    Need("hybrid_shard", "nodes"),
    Need("hybrid_shard", "context_parallel", _ONE, "splits weights inside a host alone: remove context_parallel", _ON),
    Need("pin_memory", "loader_workers"),
    Need(
        *("evaluation_every_steps", "tensor_parallel", _ONE),
        "evaluates models whose layers are whole: remove tensor_parallel",
    ),
    Need("evaluation_every_steps", "context_parallel", _ONE, "evaluates whole samples: remove context_parallel"),
    Need("evaluation_method", "evaluation_every_steps"),
    Need(
        *("evaluation_method", "loss_chunk_tokens", (None,)),
        *("'generation' needs the logits that loss_chunk_tokens leaves out: remove one of the two", ("generation",)),
    ),
    Need(
        *("evaluation_method", "compile", _OFF),
        *("'generation' would compile the layers again for every length: remove compile", ("generation",)),
    ),
    Need("evaluation_batches", "evaluation_every_steps"),
    Need("evaluation_accumulation_steps", "evaluation_every_steps"),
    Need("evaluation_output_tokens", "evaluation_method", ("generation",), _DECODED),
    *(
        Need("strategy", "optimizer", (None, "adamw", "sgd"), f"{name} {_SPLIT_STATES}", (name,))
        for name in ("fsdp", "tensor_parallel", "torchtune")
    ),
    *(
        Need("strategy", "activation_checkpointing", _WHOLE, f"{name} recomputes whole layers only", (name,))
        for name in ("torchtune", "unsloth")
    ),
)
"""Every setting of training that needs another one; a turn's trainer has those of the settings that a turn has."""

GPU_ONLY = (
    *("async_tensor_parallel", "activation_offload", "pin_memory"),
    *("cpu_offload", "offload_optimizer", "offload_parameters"),
)
"""Options that load a GPU's memory, link or limit; on a CPU they would show nothing, or never end."""

UNPREDICTED: dict[str, tuple[str, Container[object] | None]] = {
    "async_tensor_parallel": ("async_tensor_parallel", _ON),
    "optimizer": ("optimizer other than adamw", _NOT_ADAMW),
    "activation_offload": ("activation_offload", _ON),
    "mixed_precision": ("mixed_precision", None),
    "cpu_offload": ("update in host memory, whose rate no node check measures (cpu_offload)", _ON),
    "offload_optimizer": ("update in host memory, whose rate no node check measures (offload_optimizer)", _ON),
    "offload_parameters": ("offload_parameters", _ON),
    # Its hooks fetch weights module by module: at the node's rates a step's work takes a third of it on four H200s.
    "zero_stage": ("zero_stage = 3", (3,)),
    "deepspeed_config": ("deepspeed_config", None),
    "hybrid_shard": ("hybrid_shard", _ON),
    "reshard_after_forward": ("reshard_after_forward = false", (False,)),
}
"""Work that a prediction of step times leaves out: its name, and the values of the option, ``None`` for all."""


def train_rules(given: GivenSettings) -> Iterator[Breach]:
    """Every rule of training that the settings break."""
    strategies = cast("tuple[StrategyName, ...]", given.values("strategy")) or ("ddp",)
    yield from _batch_sizes(given)
    yield from _answers(given)
    # An option must mean something to every strategy of the benchmark, or points would differ in name alone.
    for key in sorted(OPTIONS):
        strangers = [name for name in strategies if key not in STRATEGIES[name].options]
        if given.values(key) and strangers:
            only = ", ".join(owners(key))
            yield Breach(f"strategy {strangers[0]} has no {key}, only {only}: give those their own benchmark", key)
    yield from unmet_needs(given, NEEDS)
    if True in given.values("sequence_parallel") and set(given.values("tensor_parallel") or (1,)) == {1}:
        yield Breach("has no effect without tensor_parallel above 1: set that, or remove it", "sequence_parallel")
    for name in strategies:
        if STRATEGIES[name].own_optimizer and given.values("fused_adamw"):
            yield Breach(f"strategy {name} brings its own optimizer; remove it", "fused_adamw")
        if STRATEGIES[name].has_stages and AUTO in given.values("batch_size_per_gpu"):
            # A stage that runs out of memory leaves the others waiting for its output.
            message = f"{AUTO!r} can't be tried with strategy {name}, whose stages wait for each other; give a number"
            yield Breach(message, "batch_size_per_gpu")


def train_scaling_rules(given: GivenSettings, scaling: str, along: str) -> Iterator[Breach]:
    """Strong scaling keeps the batch of all GPUs, weak scaling that of each; only replicas add samples."""
    needed = _BATCH_OF_SCALING[scaling]
    if not given.values(needed):
        yield Breach(f"{scaling} scaling of training needs {needed}", "scaling")
    elif scaling == "weak" and along == NODES and given.values("data_parallel") != (REST,):
        yield Breach(f"nodes add samples where replicas fill them: set data_parallel = {REST!r}", "along")
    elif scaling == "weak" and along not in {"data_parallel", NODES}:
        yield Breach(f"{along} adds no samples: weak scaling of training runs along data_parallel", "along")


def _batch_sizes(given: GivenSettings) -> Iterator[Breach]:
    sizes = [key for key in _BATCHES if given.values(key)]
    automatic = AUTO in given.values("grad_accum")
    if automatic and (len(sizes) != len(_BATCHES) or given.values("grad_accum") != (AUTO,)):
        message = f"{AUTO!r} needs both global_batch_size and batch_size_per_gpu, and no other value"
        yield Breach(message, "grad_accum")
    elif not automatic and len(sizes) != 1:
        either = "exactly one of global_batch_size (strong scaling) and batch_size_per_gpu (weak scaling)"
        yield Breach(f"needs {either}, or both with grad_accum = {AUTO!r}")


def _answers(given: GivenSettings) -> Iterator[Breach]:
    """Prompt and answer are one sample of ``sequence_tokens``."""
    outputs = given.values("evaluation_output_tokens") or (DEFAULT_OUTPUT_TOKENS,)
    sequences = given.values("sequence_tokens")
    if "generation" in given.values("evaluation_method") and sequences:
        longest, shortest = max(int(str(v)) for v in outputs), min(int(str(v)) for v in sequences)
        if longest >= shortest:
            message = f"{longest} leaves no prompt in a sample of sequence_tokens = {shortest}"
            yield Breach(message, "evaluation_output_tokens")
