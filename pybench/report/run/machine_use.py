"""How much of the machine each point used, where that is known."""

from __future__ import annotations

from collections.abc import Mapping

from pybench.core.numbers import percent, quantity
from pybench.model.results import Estimate, Results

_HEADS = {
    "mfu_fraction": "MFU",
    "mbu_fraction": "MBU",
    "energy_imbalance_fraction": "GPUs' energy apart by",
    "nvlink_bytes_per_s_per_gpu": "NVLink of a GPU",
    "stage_idle_fraction": "stages wait",
    "stage_imbalance_fraction": "stages apart by",
    "kv_cache_tokens": "KV cache",
    "num_running": "at a time",
    "num_preemptions": "preemptions",
    "prefix_hit_fraction": "prefix hits",
}


def use_table(results: Results, names: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Heads and rows: a column for each metric that any point has, a row for each point that has any of them."""
    metrics = [name for name in _HEADS if any(name in point.metrics for point in results.points)]
    rows = tuple(
        (names[point.id], *(_text(name, point.metrics.get(name)) for name in metrics))
        for point in results.points
        if any(name in point.metrics for name in metrics)
    )
    return ("point", *(_HEADS[name] for name in metrics)), rows


def _text(name: str, found: Estimate | None) -> str:
    if name.endswith("_fraction"):
        return percent(found.value if found else None)
    return quantity(found).strip()
