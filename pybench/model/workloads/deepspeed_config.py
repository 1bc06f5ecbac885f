"""A user's own config of DeepSpeed beside the settings of a point: what these decide, the file must not contradict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pybench.model.workloads.settings import AUTO
from pybench.model.workloads.train import Train

DEFAULT_STAGE = 2
"""The default stage of ZeRO."""
_Path = tuple[str, ...]


def deepspeed_conflicts(settings: Train) -> Iterator[str]:
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
                yield f"{key} is {value!r}, and {setting} gives {wanted!r}: make them equal, or remove the key"
        elif path[0] in _OWN:
            yield f"{key} is pybench's own to set: remove it"


def with_own_keys(decided: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The config that pybench ``decided``, with every key of the file that it has not."""
    merged = dict(decided)
    for key, value in given.items():
        own = merged.get(key)
        if isinstance(value, Mapping) and isinstance(own, Mapping | None):
            merged[key] = with_own_keys(own or {}, value)
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
