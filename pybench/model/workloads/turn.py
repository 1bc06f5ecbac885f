"""Generation and training that take turns on the same GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pybench.model.limits import Range
from pybench.model.workloads.engine_arguments import engine_argument_breaches
from pybench.model.workloads.generate import EngineArgument, Generate
from pybench.model.workloads.metric import less, more
from pybench.model.workloads.rules import Breach, GivenSettings
from pybench.model.workloads.settings import BatchSize, ModelSettings, Tokens
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_strategies import StrategyName
from pybench.model.workloads.traits import WorkloadTraits
from pybench.model.workloads.turn_rules import LARGEST_RATE, turn_rules

CHECK = "check"
WORKING = ("generate", "train")
TRAINING = ("trainer_onload", "train", "trainer_offload")
"""Phases in which the trainer's GPUs alone have work."""
PHASES = (
    *("generate", "engine_sleep", "trainer_onload", "train", "trainer_offload", "handover"),
    *("wake_weights", "wake_cache", "first_token", CHECK),
)
"""Parts of a turn. ``check`` belongs to no turn: it compares the engine's weights with the trainer's."""


@dataclass(frozen=True, kw_only=True)
class Turn(ModelSettings):
    """One turn: generate, engine asleep, trainer loaded, train, trainer offloaded, weights handed over, engine awake.

    A step is ``turns`` turns, each followed by its checks. ``tensor_parallel`` is the engine's degree over all GPUs.
    ``shared``: one GPU does both. ``decoupled``: the engine has all GPUs, the trainer the first one. ``full``: both
    have all GPUs, and all weights are trained.
    """

    workload: Literal["turn"] = "turn"
    topology: Annotated[Literal["shared", "decoupled", "full"], "which GPUs generate and which train"]
    batch_size: Annotated[int, BatchSize, "sequences that a turn generates and trains on, over all GPUs"]
    prompt_tokens: Annotated[int, Tokens, "prompt length of every sequence, in tokens"]
    output_tokens: Annotated[int, Range(2, 2**20), "tokens decoded for every sequence, and trained on"]
    turns: Annotated[int, Range(1, 1000), "turns in a step"] = 1
    sleep_level: Annotated[
        int, Range(0, 2), "engine asleep: 0 stays on the GPU, 1 weights in host memory, 2 weights discarded"
    ] = 1
    handover: Annotated[
        Literal["direct", "ipc", "file"], "how weights reach the engine: same process, CUDA IPC, a safetensors file"
    ] = "direct"
    async_weight_syncing: Annotated[
        bool, "the engine wakes first and gets weights while it generates the next turn's first answers"
    ] = False
    strategy: Annotated[StrategyName, "how the trainer's ranks share the work"] = "ddp"
    train_tensor_parallel: Annotated[int, Range(1, 1024), "full: the trainer's ranks that share every layer"] = 1
    train_context_parallel: Annotated[int, Range(1, 1024), "full: the trainer's ranks that share every sequence"] = 1
    batch_size_per_gpu: Annotated[int, BatchSize, "sequences that each rank of the trainer takes at once"] = 1
    loss: Annotated[Literal["cross_entropy", "grpo"], "what training minimises over the answers"] = "cross_entropy"
    group_size: Annotated[int | None, Range(2, 2**16), "grpo: answers of a group, whose rewards are compared"] = None
    max_grad_norm: Annotated[float | None, Range(1e-9, 1e9), "greatest norm of all gradients together"] = None
    learning_rate: Annotated[float, Range(0, LARGEST_RATE), "AdamW's learning rate"] = 3e-3
    activation_checkpointing: Annotated[Literal["none", "selective", "full"] | None, "what backward recomputes"] = None
    activation_offload: Annotated[
        bool | None, "what the trainer's backward needs of the layers, in host memory until then"
    ] = None
    lora_rank: Annotated[int | None, Range(1, 1024), "train LoRA adapters of this rank only"] = None
    lora_alpha: Annotated[int | None, Range(1, 4096), "LoRA's scale times its rank; default: twice the rank"] = None
    lora_targets: Annotated[
        Literal["query_value", "attention", "all_linear"] | None, "projections that get adapters"
    ] = None
    weights: Annotated[
        Literal["dtype", "nf4"] | None,
        "the trainer's frozen weights under adapters: in dtype, or in four bits (QLoRA); the engine computes with what "
        "these unpack to, in dtype",
    ] = None
    max_num_seqs: Annotated[int | None, BatchSize, "sequences that an engine runs at a time"] = None
    enforce_eager: Annotated[bool, "no CUDA graphs and no compilation in the engine"] = False
    gpu_memory_utilization: Annotated[float, Range(0.01, 1), "vllm: share of a GPU's memory"] = 0.9
    engine_args: Annotated[dict[str, EngineArgument], "more arguments of the engine, by the engine's own names"] = (
        field(default_factory=dict)
    )

    @property
    def num_gpus(self) -> int:
        """GPUs that take turns."""
        return self.tensor_parallel

    @property
    def longest_sequence_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens

    @property
    def shared_samples(self) -> int | None:
        """Every sequence of a turn."""
        return self.batch_size

    @property
    def num_trainers(self) -> int:
        """Ranks of the trainer, one on each of its GPUs."""
        return self.num_gpus if self.topology == "full" else 1

    @property
    def num_weight_shares(self) -> int:
        """Parts of the trainer's weights, one a GPU; GPUs that share sequences have all weights."""
        return 1 if self.strategy == "context_parallel" else self.num_trainers

    @property
    def num_processes(self) -> int:
        """Processes of a GPU that engine and trainer share: 1 where tensors are handed over as they are, else 2."""
        return 1 if self.handover == "direct" or self.backend == "torch" else 2

    @property
    def generation(self) -> Generate:
        """The engine's work in a turn."""
        return Generate(
            backend=self.backend,
            seed=self.seed,
            model=self.model,
            dtype=self.dtype,
            tensor_parallel=self.tensor_parallel,
            batch_size=self.batch_size,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            max_num_seqs=self.max_num_seqs,
            enforce_eager=self.enforce_eager,
            gpu_memory_utilization=self.gpu_memory_utilization,
            engine_args=self.engine_args,
        )

    @property
    def training(self) -> Train:
        """The trainer's work in a turn: one step over its sequences."""
        return Train(
            backend="torch",
            seed=self.seed,
            model=self.model,
            dtype=self.dtype,
            strategy=self.strategy,
            data_parallel=max(1, self.num_trainers // (self.train_tensor_parallel * self.train_context_parallel)),
            tensor_parallel=self.train_tensor_parallel,
            context_parallel=self.train_context_parallel,
            global_batch_size=self.batch_size,
            batch_size_per_gpu=self.batch_size_per_gpu,
            grad_accum="auto",
            sequence_tokens=self.longest_sequence_tokens,
            learning_rate=self.learning_rate,
            max_grad_norm=self.max_grad_norm,
            activation_checkpointing=self.activation_checkpointing,
            activation_offload=self.activation_offload,
            lora_rank=self.lora_rank,
            lora_alpha=self.lora_alpha,
            lora_targets=self.lora_targets,
            weights=self.weights,
        )


_METRICS = {
    "tokens_per_s_per_gpu": more("tokens/s", "prompt and decoded tokens over the turn's length, for each GPU"),
    "turn_s": less("s", "length of a turn, its checks left out"),
    "generate_s": less("s", "from the turn's start to the last sequence's end"),
    "train_s": less("s", "one training step over the turn's sequences"),
    "switch_s": less("s", "all of a turn that is neither generating nor training"),
    "switch_fraction": less("", "switch_s over turn_s"),
    "switch_floor_s": less("s", "what the copies of a switch take at this GPU's own measured rates", "max"),
    "first_sleep_s": less("s", "the process's first sleep, which allocates host memory", "max"),
    "sleep_s": less("s", "engine falling asleep, in the measured turns"),
    "trainer_onload_s": less("s", "trainer's weights and optimizer states from host memory"),
    "trainer_offload_s": less("s", "trainer's weights and optimizer states to host memory"),
    "handover_s": less("s", "weights from the trainer to the engine"),
    "wake_s": less("s", "engine waking: weights' memory, then the key-value cache's"),
    "first_token_s": less("s", "one token of one sequence, first after waking"),
    "handover_bytes": less("bytes", "weights that a turn hands over", "max"),
    "handover_bytes_per_s": more("bytes/s", "handover_bytes over handover_s; none where half of it lies in generating"),
    "handover_floor_s": less("s", "what the copies of a handover take at this GPU's own measured rates", "max"),
    "handover_efficiency": more("", "handover_floor_s over handover_s"),
    "resident_asleep_bytes": less("bytes", "in use on the fullest GPU, by every process, with the engine asleep"),
    "resident_growth_bytes_per_turn": less("bytes", "growth of resident_asleep_bytes from turn to turn"),
    "host_pinned_bytes": less("bytes", "most pinned host memory at the end of a phase, all ranks together"),
    "idle_gpu_s": less("s", "time of a turn in which GPUs wait for the trainer, summed over these GPUs"),
    "idle_gpu_fraction": less("", "share of the GPUs' time without work of the turn"),
    "energy_j_per_turn": less("J", "energy of a turn, all GPUs together, checks left out"),
    "switch_energy_fraction": less("", "share of that energy that goes to switching"),
    "idle_energy_j_per_turn": less("J", "energy of GPUs that wait for the trainer"),
    "staleness_turns": less("", "turns that the engine's weights lie behind the trainer's as it generates", "max"),
    "rounded_updates": less("", "trained weights that kept every bit: their type can't hold so small an update", "max"),
    "logprob_gap": less("nats", "mean distance of the engine's log-probabilities from the trainer's new ones", "max"),
    "logprob_gap_to_old": more("nats", "the same from the trainer's of the turn before", "min"),
}


def _rules(given: GivenSettings) -> Iterator[Breach]:
    yield from turn_rules(given)
    yield from engine_argument_breaches(given, Turn)


WORKLOAD = WorkloadTraits(
    settings=Turn,
    metrics=_METRICS,
    headline="tokens_per_s_per_gpu",
    phases=PHASES,
    rules=_rules,
)
