"""Rules that join several settings of a training benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from pybench.model.workloads.rules import Breach, GivenSettings
from pybench.model.workloads.settings import AUTO, NODES, REST
from pybench.model.workloads.train_options import DEFAULT_OUTPUT_TOKENS, OPTION_TRAITS, Need
from pybench.model.workloads.train_strategies import OPTIONS, STRATEGIES, StrategyName, owners

_BATCHES = ("global_batch_size", "batch_size_per_gpu")
_BATCH_OF_SCALING = {"strong": "global_batch_size", "weak": "batch_size_per_gpu"}


def train_rules(given: GivenSettings) -> Iterator[Breach]:
    """Every rule of training that the settings break."""
    yield from _batch_sizes(given)
    yield from _found_batch(given)
    yield from _sample_lengths(given)
    yield from _answers(given)
    yield from _options(given)
    yield from _joint_options(given)
    yield from _needs_of_strategies(given)


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


def _found_batch(given: GivenSettings) -> Iterator[Breach]:
    """A stage that runs out of memory leaves the others waiting for its output: no size can be tried."""
    staged = [name for name in _strategies(given) if STRATEGIES[name].has_stages]
    if staged and AUTO in given.values("batch_size_per_gpu"):
        message = f"{AUTO!r} can't be tried with strategy {staged[0]}, whose stages wait for each other; give a number"
        yield Breach(message, "batch_size_per_gpu")


def _sample_lengths(given: GivenSettings) -> Iterator[Breach]:
    """A sample longer than its sequence would be cut, and the rest of it never trained on."""
    lengths, sequences = given.values("sample_tokens"), given.values("sequence_tokens")
    if lengths and sequences and set(given.values("packing")) != {True}:
        longest, shortest = (pick(int(str(v)) for v in values) for pick, values in ((max, lengths), (min, sequences)))
        if longest > shortest:
            yield Breach(f"{longest} is above sequence_tokens = {shortest}: needs packing = true", "sample_tokens")


def _answers(given: GivenSettings) -> Iterator[Breach]:
    """Prompt and answer are one sample of ``sequence_tokens``."""
    outputs = given.values("evaluation_output_tokens") or (DEFAULT_OUTPUT_TOKENS,)
    sequences = given.values("sequence_tokens")
    if "generation" in given.values("evaluation_method") and sequences:
        longest, shortest = max(int(str(v)) for v in outputs), min(int(str(v)) for v in sequences)
        if longest >= shortest:
            message = f"{longest} leaves no prompt in a sample of sequence_tokens = {shortest}"
            yield Breach(message, "evaluation_output_tokens")


def _strategies(given: GivenSettings) -> tuple[StrategyName, ...]:
    return cast("tuple[StrategyName, ...]", given.values("strategy")) or ("ddp",)


def _options(given: GivenSettings) -> Iterator[Breach]:
    """An option must mean something to every strategy of the benchmark, or points would differ in name alone."""
    for key in sorted(OPTIONS):
        strangers = [name for name in _strategies(given) if key not in STRATEGIES[name].options]
        if given.values(key) and strangers:
            only = ", ".join(owners(key))
            yield Breach(f"strategy {strangers[0]} has no {key}, only {only}: give those their own benchmark", key)


def _joint_options(given: GivenSettings) -> Iterator[Breach]:
    for key, traits in OPTION_TRAITS.items():
        for need in traits.needs:
            if _is_unmet(given, need, given.values(key)):
                yield Breach(need.why, key)
        if traits.at_least_given and given.values(key) and not given.values(traits.at_least_given):
            yield Breach(f"needs {traits.at_least_given}", key)
        if traits.degree and True in given.values(key) and set(given.values(traits.degree) or (1,)) == {1}:
            yield Breach(f"has no effect without {traits.degree} above 1: set that, or remove it", key)


def _needs_of_strategies(given: GivenSettings) -> Iterator[Breach]:
    for name in _strategies(given):
        traits = STRATEGIES[name]
        for need in traits.needs:
            if _is_unmet(given, need, [name]):
                yield Breach(f"{name} {need.why}", "strategy")
        if traits.own_optimizer and given.values("fused_adamw"):
            yield Breach(f"strategy {name} brings its own optimizer; remove it", "fused_adamw")


def _is_unmet(given: GivenSettings, need: Need, values: Iterable[object]) -> bool:
    return any(map(need.applies, values)) and not set(given.values(need.other) or [None]) <= set(need.wanted)
