"""Generation and training that take turns on the same GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain, product
from typing import Annotated, Any, Literal

from pybench.model.workloads.generate import EngineArgument, Generate, engine_argument_breaches
from pybench.model.workloads.settings import BatchSize, LoraTargets, ModelSettings, Range, Tokens, defaults
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import NEEDS, STRATEGIES, StrategyName
from pybench.model.workloads.traits import Breach, GivenSettings, Need, WorkloadTraits, less, more, unmet_needs

_STRATEGIES: dict[str, tuple[StrategyName, ...]] = {
    "shared": ("ddp", "unsloth"),
    "decoupled": ("ddp", "unsloth"),
    "full": ("fsdp", "tensor_parallel", "context_parallel", "torchtune"),
}
_UNABLE: dict[str, str] = {
    "pipeline_parallel": "each GPU has some layers only, and a handover takes all layers from every GPU",
    "layer_split": "each GPU has some layers only, and a handover takes all layers from every GPU",
    "deepspeed": "its buffers hold weights and moments, which can't leave the GPU",
}
"""Strategies that no topology takes, each with the reason."""
_TRAINERS = {"train_tensor_parallel": "layers", "train_context_parallel": "sequences"}
"""Degrees of the trainer, and what each splits."""

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
    sleep_level: Annotated[int, Range(0, 2), "engine asleep: 0 on the GPU, 1 weights in host memory, 2 discarded"] = 1
    handover: Annotated[Literal["direct", "file"], "weights reach the engine in one process, or by a file"] = "direct"
    async_weight_syncing: Annotated[bool, "the engine gets weights while it generates the next answers"] = False
    strategy: Annotated[StrategyName, "how the trainer's ranks share the work"] = "ddp"
    train_tensor_parallel: Annotated[int, Range(1, 1024), "full: the trainer's ranks that share every layer"] = 1
    train_context_parallel: Annotated[int, Range(1, 1024), "full: the trainer's ranks that share every sequence"] = 1
    batch_size_per_gpu: Annotated[int, BatchSize, "sequences that each rank of the trainer takes at once"] = 1
    loss: Annotated[Literal["cross_entropy", "grpo"], "what training minimises over the answers"] = "cross_entropy"
    group_size: Annotated[int | None, Range(2, 2**16), "grpo: answers of a group, whose rewards are compared"] = None
    max_grad_norm: Annotated[float | None, Range(1e-9, 1e9), "greatest norm of all gradients together"] = None
    learning_rate: Annotated[float, Range(0, 1), "AdamW's learning rate"] = 3e-3
    activation_checkpointing: Annotated[Literal["none", "selective", "full"] | None, "what backward recomputes"] = None
    activation_offload: Annotated[bool | None, "the trainer's activations, in host memory until backward"] = None
    lora_rank: Annotated[int | None, Range(1, 1024), "train LoRA adapters of this rank only"] = None
    lora_alpha: Annotated[int | None, Range(1, 4096), "LoRA's scale times its rank; default: twice the rank"] = None
    lora_targets: Annotated[LoraTargets | None, "projections that get adapters"] = None
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
    def longest_sequence_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens

    @property
    def num_trainers(self) -> int:
        """Ranks of the trainer, one on each of its GPUs."""
        return self.num_gpus if self.topology == "full" else 1

    @property
    def num_processes(self) -> int:
        """Processes of a GPU that engine and trainer share: 1 where tensors are handed over as they are, else 2."""
        return 1 if self.handover == "direct" or self.backend == "torch" else 2

    @property
    def generation(self) -> Generate:
        """The engine's work in a turn."""
        return self.part(Generate)

    @property
    def training(self) -> Train:
        """The trainer's work in a turn: one step over its sequences."""
        return self.part(
            Train,
            backend="torch",
            data_parallel=max(1, self.num_trainers // (self.train_tensor_parallel * self.train_context_parallel)),
            tensor_parallel=self.train_tensor_parallel,
            context_parallel=self.train_context_parallel,
            global_batch_size=self.batch_size,
            grad_accum="auto",
            sequence_tokens=self.longest_sequence_tokens,
        )


_MULTIPLE, _APART = range(2, 1025), ("decoupled",)
_NEEDS = (
    Need(
        *("lora_rank", "topology", ("shared", "decoupled")),
        "topology 'full' trains all weights; remove it, or take 'shared' or 'decoupled'",
    ),
    Need("topology", "lora_rank", None, "topology 'decoupled' trains adapters on one GPU: set lora_rank", _APART),
    Need(
        *("tensor_parallel", "topology", ("decoupled", "full")),
        *("topology 'shared' is one GPU; take 'decoupled' or 'full'", _MULTIPLE),
    ),
    *(
        Need(name, "topology", ("full",), "only topology 'full' trains on several GPUs", _MULTIPLE)
        for name in _TRAINERS
    ),
    Need("activation_offload", "strategy", ("torchtune",), "only strategy torchtune has it", (True,)),
    Need(
        *("sleep_level", "lora_rank", (None,)),
        "level 2 discards the base weights, LoRA hands over the adapter alone, and vLLM 0.20.2 loses adapters, too; "
        "take level 0 or 1",
        (2,),
    ),
    Need(
        *("strategy", "backend", (None, "vllm")),
        "Unsloth replaces parts of transformers, with which backend torch's engine computes: take backend vllm",
        ("unsloth",),
    ),
    Need(
        *("async_weight_syncing", "sleep_level", (0, 1)),
        *("level 2 leaves no weights to generate with meanwhile: take level 0 or 1", (True,)),
    ),
    Need(
        *("async_weight_syncing", "handover", ("file",)),
        *("only handover = 'file' leaves the trainer before the engine wakes", (True,)),
    ),
    Need("loss", "group_size", why="loss 'grpo' compares the answers of a group: set group_size", when=("grpo",)),
    Need("group_size", "loss", ("grpo",), "needs loss = 'grpo'"),
)


def turn_rules(given: GivenSettings) -> Iterator[Breach]:
    """The problems of all points of the benchmark, each reason once."""
    usual = {**dict.fromkeys(field.name for field in fields(Turn)), **defaults(Turn), "topology": "shared"}
    values = [given.values(name) or (default,) for name, default in usual.items()]
    points = (dict(zip(usual, point, strict=True)) for point in product(*values))
    yield from {breach: None for point in points for breach in _breaches(point)}


def _breaches(point: Mapping[str, Any]) -> Iterator[Breach]:
    topology, strategy, degree = point["topology"], point["strategy"], point["tensor_parallel"]
    if strategy not in (able := _STRATEGIES[topology]):
        why = f": {_UNABLE[strategy]}" if strategy in _UNABLE else ""
        several = f"{', '.join(able[:-1])} or {able[-1]}"
        yield Breach(f"topology {topology!r} trains with strategy {several}, not {strategy}{why}", "strategy")
    if topology == "decoupled" and point["handover"] != "file" and degree != 1:
        yield Breach("topology 'decoupled' reaches engines on other GPUs by 'file' only", "handover")
    if isinstance(degree, int) and topology == "full":  # else a word for a number that the machine decides
        yield from _trainers_degrees(point, strategy, degree)
    lengths, ranks = (point["prompt_tokens"], point["output_tokens"]), point["train_context_parallel"]
    if None not in lengths and sum(lengths) % ranks:
        why = f"{sum(lengths)} tokens in a sequence can't be split over train_context_parallel {ranks}"
        yield Breach(why, "train_context_parallel")
    group, batch = point["group_size"], point["batch_size"]
    if group is not None and batch is not None and batch % group:
        yield Breach(f"{batch} sequences can't be split into groups of {group}", "group_size")
    of_trainer = (need for need in NEEDS if {need.option, need.other} <= point.keys())
    yield from unmet_needs(GivenSettings(point, {}), (*_NEEDS, *of_trainer))


def _trainers_degrees(point: Mapping[str, Any], strategy: StrategyName, degree: int) -> Iterator[Breach]:
    """Degrees of the trainer's ranks that share layers or sequences."""
    for name, split in _TRAINERS.items():
        trained = point[name]
        if degree % trained:
            yield Breach(f"{degree} GPUs can't be split over {name} {trained}", name)
        elif f"train_{strategy}" == name and trained != degree:
            yield Breach(f"strategy {strategy} splits {split} over all {degree} GPUs: set it so", name)
        elif trained > 1 and name.removeprefix("train_") not in STRATEGIES[strategy].parallel_axes:
            yield Breach(f"strategy {strategy} does not split {split}; take strategy fsdp", name)
    if strategy == "fsdp" and all(point[name] > 1 for name in _TRAINERS):
        why = "layers that are split over train_tensor_parallel don't attend over a split sequence: give one of them"
        yield Breach(why, "train_context_parallel")


_METRICS = {
    "tokens_per_s_per_gpu": more("tokens/s", "prompt and decoded tokens over the turn's length, for each GPU"),
    "turn_s": less("s", "length of a turn, its checks left out"),
    "generate_s": less("s", "from the turn's start to the last sequence's end"),
    "train_s": less("s", "one training step over the turn's sequences"),
    "switch_s": less("s", "all of a turn that is neither generating nor training"),
    "switch_fraction": less("", "switch_s over turn_s"),
    "first_sleep_s": less("s", "the process's first sleep, which allocates host memory", "max"),
    "sleep_s": less("s", "engine falling asleep, in the measured turns"),
    "trainer_onload_s": less("s", "trainer's weights and optimizer states from host memory"),
    "trainer_offload_s": less("s", "trainer's weights and optimizer states to host memory"),
    "handover_s": less("s", "weights from the trainer to the engine"),
    "wake_s": less("s", "engine waking: weights' memory, then the key-value cache's"),
    "first_token_s": less("s", "one token of one sequence, first after waking"),
    "handover_bytes": less("bytes", "weights that a turn hands over", "max", is_count=True),
    "handover_bytes_per_s": more("bytes/s", "handover_bytes over handover_s; none where half of it lies in generating"),
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
WORKLOAD = WorkloadTraits(
    settings=Turn,
    metrics=_METRICS,
    phases=PHASES,
    rules=lambda given: chain(turn_rules(given), engine_argument_breaches(given, Turn)),
)
