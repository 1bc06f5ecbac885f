"""Training, and the config of DeepSpeed that a user gives beside its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pybench.model.workloads.settings import AUTO, BatchSize, LoraTargets, ModelSettings, Nodes, Range, Tokens
from pybench.model.workloads.train_rules import STRATEGIES, StrategyName, train_rules, train_scaling_rules
from pybench.model.workloads.traits import Reason, WorkloadTraits, less, more, throughput

Auto = Literal["auto"]
_MOST_MICROBATCHES = 4
"""Default number for each stage."""
_MOST_SAMPLES = 4096
"""That a rank is tried with: far above what fits anywhere, it ends a search where memory seems to have no end."""


@dataclass(frozen=True, kw_only=True)
class Train(ModelSettings):
    """Training: one step is forward, backward and optimizer update over the whole effective batch.

    Either ``global_batch_size`` is given (strong scaling) or ``batch_size_per_gpu`` (weak scaling), or both with
    ``grad_accum = "auto"``. An option that only some strategies have is ``None`` where it is not given.
    """

    workload: Literal["train"] = "train"
    strategy: Annotated[StrategyName, "how ranks share the work"] = "ddp"
    nodes: Annotated[int, Nodes, "hosts that the ranks are spread over, as many on each"] = 1
    global_batch_size: Annotated[int | None, BatchSize, "samples in a step over all GPUs: strong scaling"] = None
    batch_size_per_gpu: Annotated[
        int | Auto | None, BatchSize, "samples that each rank takes at once: weak scaling; auto: the most that fit"
    ] = None
    grad_accum: Annotated[int | Auto, Range(1, 4096), "passes before an update; auto: by global_batch_size"] = 1
    sequence_tokens: Annotated[int, Tokens, "sample length, in tokens"]
    loader_workers: Annotated[int | None, Range(0, 256), "processes of torch's DataLoader; 0: the rank itself"] = None
    pin_memory: Annotated[bool | None, "loader: batches in pinned host memory, copied while the rank goes on"] = None
    evaluation_every_steps: Annotated[int | None, Range(1, 1_000_000), "updates between two evaluations"] = None
    evaluation_method: Annotated[Literal["loss", "generation"] | None, "by loss (default) or decoded answers"] = None
    evaluation_batches: Annotated[int | None, Range(1, 65_536), "batches of an evaluation on a rank; default: 1"] = None
    evaluation_output_tokens: Annotated[int | None, Range(1, 2**20), "generation: tokens decoded; default: 64"] = None
    evaluation_accumulation_steps: Annotated[
        int | None, Range(1, 65_536), "batches whose results stay on the device together; default: all"
    ] = None
    learning_rate: Annotated[float, Range(0, 1), "AdamW's learning rate"] = 1e-4
    fused_adamw: Annotated[bool, "AdamW as one kernel"] = True
    optimizer: Annotated[
        Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit", "sgd"] | None,
        "default: adamw; 8bit: states in eight bits, paged: states in memory that the driver pages (bitsandbytes)",
    ] = None
    max_grad_norm: Annotated[float | None, Range(1e-9, 1e9), "greatest norm of all gradients together"] = None
    activation_checkpointing: Annotated[
        Literal["none", "selective", "full"] | None,
        "recompute in backward: nothing, all but matrix products and attention, or every layer",
    ] = None
    loss_chunk_tokens: Annotated[int | None, Range(64, 1_048_576), "tokens of logits in memory at once"] = None
    activation_offload: Annotated[bool | None, "torchtune: activations in host memory until backward"] = None
    compile: Annotated[bool | None, "torch.compile each layer, and the loss"] = None
    control_steps: Annotated[int | None, Range(0, 100), "steps without communication, after the measured ones"] = None
    bucket_cap_mb: Annotated[int | None, Range(1, 4096), "ddp: size of a gradient bucket, in MiB"] = None
    find_unused_parameters: Annotated[bool | None, "ddp: look for parameters without gradient"] = None
    broadcast_buffers: Annotated[bool | None, "ddp: rank 0's buffers before each forward pass"] = None
    gradient_as_bucket_view: Annotated[bool | None, "ddp: gradients live in the buckets"] = None
    reshard_after_forward: Annotated[bool | None, "fsdp: gather weights again for backward"] = None
    mixed_precision: Annotated[
        Literal["bfloat16"] | None, "fsdp, accelerate: compute in this type over weights of dtype"
    ] = None
    hybrid_shard: Annotated[bool | None, "fsdp: weights split inside each host, hosts average gradients (HSDP)"] = None
    cpu_offload: Annotated[bool | None, "fsdp: weights, gradients and optimizer states in host memory"] = None
    sequence_parallel: Annotated[bool | None, "tensor parallel: norms split along the sequence"] = None
    async_tensor_parallel: Annotated[bool | None, "tensor parallel: collectives overlap matrix products"] = None
    schedule: Annotated[Literal["gpipe", "1f1b", "interleaved_1f1b"] | None, "pipeline: order of passes"] = None
    microbatches: Annotated[int | None, Range(1, 1024), "pipeline: parts of a batch; default: up to 4 a stage"] = None
    stages_per_rank: Annotated[int | None, Range(1, 64), "pipeline: stages of each rank, interleaved_1f1b only"] = None
    lora_rank: Annotated[int | None, Range(1, 1024), "train LoRA adapters of this rank only"] = None
    lora_alpha: Annotated[int | None, Range(1, 4096), "LoRA's scale times its rank; default: twice the rank"] = None
    lora_targets: Annotated[LoraTargets | None, "projections that get adapters"] = None
    lora_dropout: Annotated[float | None, Range(0, 0.9), "random share of the adapters' inputs that is zero"] = None
    weights: Annotated[Literal["dtype", "nf4"] | None, "frozen weights: in dtype, or in four bits (QLoRA)"] = None
    zero_stage: Annotated[int | None, Range(1, 3), "deepspeed: what ZeRO splits"] = None
    offload_optimizer: Annotated[bool | None, "deepspeed: optimizer states in host memory"] = None
    offload_parameters: Annotated[bool | None, "deepspeed: weights in host memory, stage 3 only"] = None
    deepspeed_config: Annotated[dict[str, Any] | None, "deepspeed: its own JSON, relative to the suite's folder"] = None

    @property
    def finds_batch_size(self) -> bool:
        """Whether the worker must first find out what fits."""
        return self.batch_size_per_gpu == AUTO

    @property
    def sizes_to_try(self) -> Sequence[int]:
        """Samples of a rank that ``auto`` chooses from, ascending: those that divide its part of a given batch."""
        if self.global_batch_size is None:
            return range(1, _MOST_SAMPLES + 1)
        part = self.global_batch_size // self.data_parallel
        return [size for size in range(1, min(part, _MOST_SAMPLES) + 1) if part % size == 0]

    @property
    def num_shards(self) -> int:
        """Data-parallel ranks that split weights between them where the strategy does: of one host, or all."""
        return self.data_parallel // self.nodes if self.hybrid_shard else self.data_parallel

    @property
    def splits_vocabulary(self) -> bool:
        """Whether ranks compute the loss each of its part of the vocabulary."""
        return self.tensor_parallel > 1 and STRATEGIES[self.strategy].splits_vocabulary

    @property
    def computing_dtype(self) -> str:
        """Type of the forward and backward passes' products."""
        return self.mixed_precision or self.dtype

    @property
    def micro_batch_size(self) -> int:
        """Samples that each data-parallel rank takes at once. Not known before an ``auto`` is found."""
        if self.batch_size_per_gpu is None:
            assert self.global_batch_size is not None
            assert self.grad_accum != AUTO
            return self.global_batch_size // (self.data_parallel * int(self.grad_accum))
        assert self.batch_size_per_gpu != AUTO
        return int(self.batch_size_per_gpu)

    @property
    def num_passes(self) -> int:
        """Forward and backward passes of a step on each rank."""
        if self.grad_accum != AUTO:
            return int(self.grad_accum)
        assert self.global_batch_size is not None
        return self.global_batch_size // (self.data_parallel * self.micro_batch_size)

    @property
    def accumulates(self) -> bool:
        """Whether a step has several passes; not known, and ``False``, where a worker finds the batch size."""
        return not self.finds_batch_size and self.num_passes > 1

    @property
    def has_control_steps(self) -> bool:
        """Whether steps without exchange follow: not of one rank, nor where every layer exchanges (tensor, context)."""
        return bool(self.control_steps) and self.data_parallel > 1 and self.tensor_parallel * self.context_parallel == 1

    @property
    def num_microbatches(self) -> int:
        """Parts that a rank's samples go through the stages in; 1 where the strategy has none.

        The default is the largest number that divides the samples and that the schedule takes, from four to one a
        stage. With four a stage waits for at most a fifth of a step, which GPipe (arXiv:1811.06965) finds negligible.
        One each where none does.
        """
        stages = self.pipeline_parallel
        if self.microbatches is not None:
            return self.microbatches
        if stages == 1 or not STRATEGIES[self.strategy].has_microbatches:
            return 1
        wanted = range(_MOST_MICROBATCHES * stages, stages - 1, -1)
        taken = (parts for parts in wanted if self.schedule != "interleaved_1f1b" or fill_rounds(parts, stages))
        return next((parts for parts in taken if self.micro_batch_size % parts == 0), stages)

    @property
    def effective_batch_size(self) -> int:
        """Samples of a step over all ranks."""
        return self.micro_batch_size * self.num_passes * self.data_parallel

    @property
    def longest_sequence_tokens(self) -> int:
        """One sample."""
        return self.sequence_tokens


def fill_rounds(parts: int, stages: int) -> bool:
    """Whether ``interleaved_1f1b`` takes ``parts`` microbatches: rounds of at least ``stages`` must be equal."""
    return parts % max(1, parts // stages) == 0


_METRICS = {
    "tokens_per_s": throughput("tokens/s", "trained tokens over the step's length, all GPUs together"),
    "samples_per_s": throughput("samples/s", "trained samples over the step's length, all GPUs together"),
    "flops_per_s_per_gpu": more("FLOP/s", "operations the model needs over the step's length, for each GPU"),
    "model_flops": more("FLOP", "operations the model needs for one step, all GPUs together"),
    "energy_imbalance_fraction": less("", "(max - min) / mean of the GPUs' energy"),
    "model_flops_per_j": more("FLOP/J", "those operations over energy, all GPUs together"),
    "mfu_fraction": more("", "model FLOPs utilisation: those operations over what the GPUs' tensor cores can do"),
    "hfu_fraction": more("", "hardware FLOPs utilisation: as MFU, what is recomputed counted too"),
    "step_p50_s": less("s", "median length of an attempt's steps"),
    "step_p90_s": less("s", "90th percentile of an attempt's steps"),
    "step_p99_s": less("s", "99th percentile of an attempt's steps"),
    "energy_j_per_token": less("J/token", "energy over trained tokens, all GPUs together"),
    "exposed_communication_fraction": less("", "share of a step that communication takes: see control_steps", "max"),
    "straggler_gap_fraction": less("", "slowest rank over the others' median, less 1, while no rank waits", "max"),
    "job_h": less("h", "length of the whole job that the benchmark names, its training steps alone"),
    "job_energy_j": less("J", "energy of the whole job, its training steps alone, all GPUs together"),
    "torch_adam_fallback": less("", "1 where torch's AdamW is in the place of DeepSpeed's on the host; else 0", "max"),
    "host_update_threads": more("", "threads of a rank whose optimizer updates in host memory", "min"),
    "reduced_bytes": less("bytes", "gradients that a rank gives to the reductions of a step; ddp", "max"),
    "evaluation_s": less("s", "length of one evaluation, on the slowest rank", "max"),
    "evaluation_overhead_fraction": less("", "share of the training that evaluating every so many steps takes"),
    "input_wait_s": less("s", "wait of a step for its loader, on the rank that waits most", "max", part_of_step=True),
    "input_wait_fraction": less("", "input_wait_s over the step's length"),
    "batch_size_per_gpu": more("samples", "samples that each data-parallel rank takes at once", "max"),
    "trained_parameters": less("", "parameters that the optimizer updates, of the whole model", "max", is_count=True),
    "trained_fraction": less("", "LoRA: trained_parameters over all parameters, adapters included", is_count=True),
    "stage_busy_s": more("s", "time that a rank's stages compute in a step, mean of ranks", "mean", part_of_step=True),
    "stage_idle_fraction": less("", "share of a step in which a rank's stages wait, mean over the ranks"),
    "stage_imbalance_fraction": less("", "(max - min) / mean of the ranks' stage_busy_s"),
    "loss": less("nats", "cross-entropy of a step's tokens, the mean over all ranks"),
}
WORKLOAD = WorkloadTraits(
    settings=Train,
    metrics=_METRICS,
    shared_batch="global_batch_size",
    rules=train_rules,
    scaling_rules=train_scaling_rules,
)

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_PROJECTIONS: dict[str, tuple[str, ...]] = {
    "query_value": ("q_proj", "v_proj"),
    "attention": _ATTENTION,
    "all_linear": (*_ATTENTION, "gate_proj", "up_proj", "down_proj"),
}


def projections(lora_targets: str | None) -> tuple[str, ...]:
    """Names of a layer's projections, as transformers has them, for a setting; its default is ``query_value``."""
    return _PROJECTIONS[lora_targets or "query_value"]


DEFAULT_STAGE = 2
"""The default stage of ZeRO."""
_Path = tuple[str, ...]


def deepspeed_conflicts(settings: Train) -> Iterator[Reason]:
    """Each key of the file that contradicts a setting, or that pybench sets; ``"auto"`` contradicts none."""
    if settings.deepspeed_config is None:
        return
    decided = _decided(settings)
    for path, value in _leaves(settings.deepspeed_config):
        key = f"deepspeed_config: {'.'.join(path)}"
        if value == AUTO:
            continue
        if path in decided:
            wanted, setting = decided[path]
            if wanted is not None and value != wanted:
                fault = f"{key} is {value!r}, and {setting} gives {wanted!r}"
                yield "settings", f"{fault}: make them equal, or remove the key"
        elif path[0] in _OWN:
            yield "settings", f"{key} is pybench's own to set: remove it"


def with_own_keys(decided: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The config that pybench ``decided``, with every key of the file that it has not."""
    merged = dict(decided)
    for key, value in given.items():
        ours = merged.get(key)
        if isinstance(value, Mapping) and isinstance(ours, Mapping | None):
            merged[key] = with_own_keys(ours or {}, value)
        elif value != AUTO and key not in merged:
            merged[key] = value
    return merged


_OWN = ("optimizer", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer")


def _decided(settings: Train) -> dict[_Path, tuple[Any, str]]:
    """Value of each key that a setting decides, ``None`` where it is found while running, and that setting."""
    zero = "zero_optimization"
    batch = None if settings.finds_batch_size else settings.micro_batch_size
    passes = None if batch is None else settings.num_passes
    whole = None if batch is None else settings.effective_batch_size
    return {
        ("train_batch_size",): (whole, "the effective batch"),
        ("train_micro_batch_size_per_gpu",): (batch, "the batch size"),
        ("gradient_accumulation_steps",): (passes, "grad_accum"),
        ("gradient_clipping",): (settings.max_grad_norm or 0.0, "max_grad_norm"),
        ("bf16", "enabled"): (settings.dtype == "bfloat16", "dtype"),
        ("fp16", "enabled"): (settings.dtype == "float16", "dtype"),
        (zero, "stage"): (settings.zero_stage or DEFAULT_STAGE, "zero_stage"),
        (zero, "offload_optimizer", "device"): ("cpu" if settings.offload_optimizer else "none", "offload_optimizer"),
        (zero, "offload_param", "device"): ("cpu" if settings.offload_parameters else "none", "offload_parameters"),
        ("optimizer", "type"): ("AdamW", "pybench"),
        ("optimizer", "params", "lr"): (settings.learning_rate, "learning_rate"),
    }


def _leaves(table: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
