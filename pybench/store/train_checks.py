"""Rules that join several keys of a training benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pybench.model.workloads.train import AUTO
from pybench.model.workloads.train_strategies import OPTIONS, STRATEGIES, StrategyName, owners
from pybench.store.toml_lines import KeyPath

Found = tuple[KeyPath, str]

_BATCHES = ("global_batch_size", "batch_size_per_gpu")


def train_checks(table: dict[str, Any]) -> Iterator[Found]:
    """Every rule a training benchmark breaks."""
    yield from _batch_sizes(table)
    yield from _found_batch(table)
    yield from _options(table)
    yield from _joint_options(table)


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
    staged = [name for name in _strategies(table) if "pipeline_parallel" in STRATEGIES[name].parallel_axes]
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


@dataclass(frozen=True)
class _Need:
    """A ``value`` of ``key`` needs all of ``other``'s to be among ``wanted``; without a ``value``, any of ``key``."""

    key: str
    other: str
    wanted: tuple[Any, ...]
    why: str
    value: Any = None


_NEEDS = (
    _Need("schedule", "stages_per_rank", (None, 1), "has one stage for each rank", "gpipe"),
    _Need("schedule", "stages_per_rank", (None, 1), "has one stage for each rank", "1f1b"),
    _Need("async_tensor_parallel", "sequence_parallel", (True,), "needs sequence_parallel = true", value=True),
    _Need("async_tensor_parallel", "compile", (True,), "needs compile = true", value=True),
    _Need("offload_parameters", "zero_stage", (3,), "needs zero_stage = 3: only there weights are split", value=True),
    _Need("static_graph", "grad_accum", (None, 1), "can't hold gradients back: remove grad_accum", value=True),
    _Need("strategy", "activation_checkpointing", (None, "none", "full"), "recomputes whole layers only", "torchtune"),
    _Need("strategy", "activation_checkpointing", (None, "none", "full"), "recomputes whole layers only", "unsloth"),
    # Inductor turns them into mm.out and kernels of its own: read off with torch 2.13.
    _Need(
        *("activation_checkpointing", "compile", (None, False)),
        "can't tell matrix products from the rest in compiled layers, and would recompute them as full does",
        "selective",
    ),
    _Need("mixed_precision", "dtype", ("float32",), "computes over float32 weights: set dtype = 'float32'"),
)


def _joint_options(table: dict[str, Any]) -> Iterator[Found]:
    for need in _NEEDS:
        values = _values(table, need.key)
        applies = bool(values) if need.value is None else need.value in values
        if applies and not set(_values(table, need.other) or [None]) <= set(need.wanted):
            yield _where(table, need.key), need.why if need.value in {None, True} else f"{need.value} {need.why}"
    for key in ("lora_alpha", "lora_targets"):
        if _values(table, key) and not _values(table, "lora_rank"):
            yield _where(table, key), "needs lora_rank"
    several = any(count > 1 for count in _values(table, "stages_per_rank"))
    if several and not _values(table, "schedule"):
        yield _where(table, "stages_per_rank"), "more than one needs schedule = 'interleaved_1f1b'"
    if "deepspeed" in _values(table, "strategy") and _values(table, "fused_adamw"):
        yield _where(table, "fused_adamw"), "strategy deepspeed brings its own optimizer; remove it"
