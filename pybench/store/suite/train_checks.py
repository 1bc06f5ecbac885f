"""Rules that join several keys of a training benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pybench.model.workloads.train import AUTO
from pybench.model.workloads.train_options import OPTION_TRAITS, Need
from pybench.model.workloads.train_strategies import OPTIONS, STRATEGIES, StrategyName, owners
from pybench.store.toml.lines import KeyPath

Found = tuple[KeyPath, str]

_BATCHES = ("global_batch_size", "batch_size_per_gpu")


def train_checks(table: dict[str, Any]) -> Iterator[Found]:
    """Every rule a training benchmark breaks."""
    yield from _batch_sizes(table)
    yield from _found_batch(table)
    yield from _options(table)
    yield from _joint_options(table)
    yield from _needs_of_strategies(table)


def _values(table: dict[str, Any], key: str) -> list[Any]:
    """What a setting is in the benchmark's points; empty where it is not given."""
    return list(table.get("axes", {}).get(key, [table[key]] if key in table else []))


def _where(table: dict[str, Any], key: str) -> KeyPath:
    return ("axes", key) if key in table.get("axes", {}) else (key,)


def _batch_sizes(table: dict[str, Any]) -> Iterator[Found]:
    given = [key for key in _BATCHES if _values(table, key)]
    automatic = AUTO in _values(table, "grad_accum")
    if automatic and (len(given) != len(_BATCHES) or _values(table, "grad_accum") != [AUTO]):
        yield (
            _where(table, "grad_accum"),
            "'auto' needs both global_batch_size and batch_size_per_gpu, and no other value",
        )
    elif not automatic and len(given) != 1:
        either = "exactly one of global_batch_size (strong scaling) and batch_size_per_gpu (weak scaling)"
        yield (), f"needs {either}, or both with grad_accum = 'auto'"


def _found_batch(table: dict[str, Any]) -> Iterator[Found]:
    """A stage that runs out of memory leaves the others waiting for what it would hand them: no size can be tried."""
    staged = [name for name in _strategies(table) if STRATEGIES[name].has_stages]
    if staged and AUTO in _values(table, "batch_size_per_gpu"):
        yield (
            _where(table, "batch_size_per_gpu"),
            f"'auto' can't be tried with strategy {staged[0]}, whose stages wait for each other; give a number",
        )


def _strategies(table: dict[str, Any]) -> list[StrategyName]:
    return _values(table, "strategy") or ["ddp"]


def _options(table: dict[str, Any]) -> Iterator[Found]:
    """An option must mean something to every strategy of the benchmark, or points would differ in name alone."""
    strategies = _strategies(table)
    for key in sorted(OPTIONS):
        strangers = [name for name in strategies if key not in STRATEGIES[name].options]
        if _values(table, key) and strangers:
            yield (
                _where(table, key),
                f"strategy {strangers[0]} has no {key}, only {', '.join(owners(key))}: give those their own benchmark",
            )


def _joint_options(table: dict[str, Any]) -> Iterator[Found]:
    for key, traits in OPTION_TRAITS.items():
        for need in traits.needs:
            if _is_unmet(table, need, _values(table, key)):
                yield _where(table, key), need.why
        if traits.at_least_given and _values(table, key) and not _values(table, traits.at_least_given):
            yield _where(table, key), f"needs {traits.at_least_given}"


def _needs_of_strategies(table: dict[str, Any]) -> Iterator[Found]:
    for name in _strategies(table):
        traits = STRATEGIES[name]
        for need in traits.needs:
            if _is_unmet(table, need, [name]):
                yield _where(table, "strategy"), f"{name} {need.why}"
        if traits.own_optimizer and _values(table, "fused_adamw"):
            yield _where(table, "fused_adamw"), f"strategy {name} brings its own optimizer; remove it"


def _is_unmet(table: dict[str, Any], need: Need, values: Iterable[object]) -> bool:
    return any(map(need.applies, values)) and not set(_values(table, need.other) or [None]) <= set(need.wanted)
