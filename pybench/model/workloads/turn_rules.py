"""Combinations of a turn's settings that can't work, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from pybench.model.workloads.rules import Breach, GivenSettings, unmet_needs
from pybench.model.workloads.train_rules import NEEDS
from pybench.model.workloads.train_strategies import STRATEGIES, StrategyName

LARGEST_RATE = 1.0
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
_DEFAULTS: dict[str, Any] = {
    "topology": "shared",
    "tensor_parallel": 1,
    "train_tensor_parallel": 1,
    "train_context_parallel": 1,
    "strategy": "ddp",
    "sleep_level": 1,
    "handover": "direct",
    "lora_rank": None,
    "lora_alpha": None,
    "lora_targets": None,
    "weights": None,
    "activation_checkpointing": None,
    "activation_offload": None,
    "loss": "cross_entropy",
    "group_size": None,
    "batch_size": None,
    "prompt_tokens": None,
    "output_tokens": None,
    "async_weight_syncing": False,
    "backend": None,
}
"""Settings that the rules join, as they are where a benchmark does not give them."""


def turn_rules(given: GivenSettings) -> Iterator[Breach]:
    """The problems of all points of the benchmark, each reason once."""
    found = {breach: None for point in _points(given) for breach in _breaches(point)}
    yield from found


def _points(given: GivenSettings) -> Iterator[dict[str, Any]]:
    values = [given.values(name) or (default,) for name, default in _DEFAULTS.items()]
    return (dict(zip(_DEFAULTS, point, strict=True)) for point in product(*values))


def _breaches(point: Mapping[str, Any]) -> Iterator[Breach]:
    yield from _topology(point)
    yield from _degrees(point)
    yield from _chunks(point)
    yield from _trainers_options(point)
    yield from _handover(point)
    yield from _policy_loss(point)


def _topology(point: Mapping[str, Any]) -> Iterator[Breach]:
    topology, adapters = point["topology"], point["lora_rank"] is not None
    if topology == "full" and adapters:
        yield Breach("topology 'full' trains all weights; remove it, or take 'shared' or 'decoupled'", "lora_rank")
    if topology == "decoupled" and not adapters:
        yield Breach("topology 'decoupled' trains adapters on one GPU: set lora_rank", "topology")
    if point["strategy"] not in _STRATEGIES[topology]:
        *several, last = _STRATEGIES[topology]
        able = f"{', '.join(several)} or {last}"
        why = f": {_UNABLE[point['strategy']]}" if point["strategy"] in _UNABLE else ""
        yield Breach(f"topology {topology!r} trains with strategy {able}, not {point['strategy']}{why}", "strategy")


def _degrees(point: Mapping[str, Any]) -> Iterator[Breach]:
    topology, degree = point["topology"], point["tensor_parallel"]
    if not isinstance(degree, int):
        return  # a word for a number that the machine decides
    if topology == "shared" and degree > 1:
        yield Breach(f"topology 'shared' is one GPU, found {degree}; take 'decoupled' or 'full'", "tensor_parallel")
    for name in _TRAINERS:
        yield from _trainers_degree(point, name)
    if point["strategy"] == "fsdp" and all(point[name] > 1 for name in _TRAINERS):
        why = "layers that are split over train_tensor_parallel don't attend over a split sequence: give one of them"
        yield Breach(why, "train_context_parallel")


def _trainers_degree(point: Mapping[str, Any], name: str) -> Iterator[Breach]:
    """Of the trainer's ranks that share layers or sequences: a strategy of that name splits over all GPUs."""
    topology, degree, trained = point["topology"], point["tensor_parallel"], point[name]
    strategy = point["strategy"]
    alone = f"train_{strategy}"
    if trained > 1 and topology != "full":
        yield Breach(f"topology {topology!r} trains on one GPU; take 'full'", name)
    elif degree % trained:
        yield Breach(f"{degree} GPUs can't be split over {name} {trained}", name)
    elif alone == name and trained != degree:
        yield Breach(f"strategy {strategy} splits {_TRAINERS[name]} over all {degree} GPUs: set it so", name)
    elif trained > 1 and name.removeprefix("train_") not in STRATEGIES[strategy].parallel_axes:
        yield Breach(f"strategy {strategy} does not split {_TRAINERS[name]}; take strategy fsdp", name)


def _chunks(point: Mapping[str, Any]) -> Iterator[Breach]:
    lengths, ranks = (point["prompt_tokens"], point["output_tokens"]), point["train_context_parallel"]
    if None not in lengths and sum(lengths) % ranks:
        why = f"{sum(lengths)} tokens in a sequence can't be split over train_context_parallel {ranks}"
        yield Breach(why, "train_context_parallel")


def _trainers_options(point: Mapping[str, Any]) -> Iterator[Breach]:
    """Needs of training's settings that a turn has, too, and what sleeping and the strategy refuse."""
    given = GivenSettings(point, {})
    yield from unmet_needs(given, (need for need in NEEDS if {need.option, need.other} <= point.keys()))
    if point["sleep_level"] == 2 and point["lora_rank"] is not None:  # noqa: PLR2004 - the level
        why = (
            "level 2 discards the base weights, LoRA hands over the adapter alone, and vLLM 0.20.2 loses adapters, too"
        )
        yield Breach(f"{why}; take level 0 or 1", "sleep_level")
    strategy = point["strategy"]
    if point["activation_offload"] and "activation_offload" not in STRATEGIES[strategy].options:
        yield Breach(f"strategy {strategy} has none; only torchtune has it", "activation_offload")


def _handover(point: Mapping[str, Any]) -> Iterator[Breach]:
    way = point["handover"]
    several = not isinstance(point["tensor_parallel"], int) or point["tensor_parallel"] > 1
    if point["topology"] == "decoupled" and way != "file" and several:
        yield Breach("topology 'decoupled' reaches engines on other GPUs by 'file' only", "handover")
    if point["backend"] == "torch" and way == "ipc":
        yield Breach("backend torch has engine and trainer in one process: take 'direct' or 'file'", "handover")
    if point["backend"] == "torch" and point["strategy"] == "unsloth":
        why = "Unsloth replaces parts of transformers, with which backend torch's engine computes: take backend vllm"
        yield Breach(why, "strategy")
    if point["async_weight_syncing"] and point["sleep_level"] == 2:  # noqa: PLR2004 - the level
        yield Breach("level 2 leaves no weights to generate with meanwhile: take level 0 or 1", "async_weight_syncing")
    if point["async_weight_syncing"] and way != "file":
        yield Breach("only handover = 'file' leaves the trainer before the engine wakes", "async_weight_syncing")


def _policy_loss(point: Mapping[str, Any]) -> Iterator[Breach]:
    group, batch = point["group_size"], point["batch_size"]
    if point["loss"] == "grpo" and group is None:
        yield Breach("loss 'grpo' compares the answers of a group: set group_size", "loss")
    if point["loss"] != "grpo" and group is not None:
        yield Breach("needs loss = 'grpo'", "group_size")
    if group is not None and batch is not None and batch % group:
        yield Breach(f"{batch} sequences can't be split into groups of {group}", "group_size")
