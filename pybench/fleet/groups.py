"""Figures that one cause moves together: they are counted once."""

from __future__ import annotations

from pybench.core.node.links import SLOWER_FRACTION
from pybench.model.workloads.registry import HEADLINES, SLOWER_FRACTIONS

_GROUPS = {
    "matmul_flops_per_s": "products",
    "burn_flops_per_s": "products",
    "memory_bytes_per_s": "memory",
    "host_copy_bytes_per_s": "host copies",
    "peer_copy_bytes_per_s": "links",
    "busbw_bytes_per_s": "links",
    "launch_s": "launches",
}
_MODELS = "models"
_LEAST_CERTAIN_ON_CPU = 0.5
"""Launches too: attempts of one GPU were 1 to 51 µs apart."""


def group_of(metric: str) -> str | None:
    """The group of a speed; ``None`` for a metric that shows no speed, such as joules or memory in use."""
    return _GROUPS.get(metric, _MODELS) if metric in HEADLINES else None


def certain_fraction(metric: str, *, on_gpu: bool) -> float:
    """How far below the others one run alone shows that a node is bad: farther than GPUs of one node may differ."""
    if not on_gpu or group_of(metric) == "launches":
        return _LEAST_CERTAIN_ON_CPU
    return SLOWER_FRACTIONS.get(metric, SLOWER_FRACTION)
