"""Training points ranked: what each strategy gives, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybench.core.numbers import percent, plain, quantity, short_percent
from pybench.model.results import Estimate, PointResult

HEADS = (
    *("point", "rank", "tokens/s", "per GPU", "MFU", "HFU", "memory", "energy", "rank by memory", "rank by energy"),
    *("batch per GPU", "trained", "exposed comm.", "straggler gap", "input wait", "evaluation", "loss"),
)


def training_rows(points: Sequence[PointResult], names: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Cells of every measured training point, the fastest first; equal places for equal figures, of one alone none."""
    trained = [point for point in points if "tokens_per_s" in point.metrics]
    ordered = sorted(trained, key=lambda point: -point.metrics["tokens_per_s"].value)
    return tuple(_row(point, names[point.id], ordered) for point in ordered)


def _row(point: PointResult, name: str, everyone: Sequence[PointResult]) -> tuple[str, ...]:
    metrics = point.metrics
    return (
        name,
        _place(point, everyone, "tokens_per_s", more=True),
        quantity(metrics.get("tokens_per_s")),
        quantity(metrics.get("flops_per_s_per_gpu")),
        _percent(metrics.get("mfu_fraction")),
        _percent(metrics.get("hfu_fraction")),
        quantity(metrics.get("peak_memory_bytes")),
        quantity(metrics.get("energy_j_per_token")),
        _place(point, everyone, "peak_memory_bytes", more=False),
        _place(point, everyone, "energy_j_per_token", more=False),
        _plain(metrics.get("batch_size_per_gpu")),
        _trained(metrics),
        _percent(metrics.get("exposed_communication_fraction")),
        _percent(metrics.get("straggler_gap_fraction")),
        _percent(metrics.get("input_wait_fraction")),
        _percent(metrics.get("evaluation_overhead_fraction")),
        _plain(metrics.get("loss")),
    )


def _place(point: PointResult, everyone: Sequence[PointResult], metric: str, *, more: bool) -> str:
    if metric not in point.metrics:
        return "-"
    own = point.metrics[metric].value
    others = [other.metrics[metric].value for other in everyone if metric in other.metrics]
    if len(others) == 1:
        return "-"
    return str(1 + sum(other > own if more else other < own for other in others))


def _trained(metrics: Mapping[str, Estimate]) -> str:
    """Adapters alone: how many parameters, and their share."""
    if "trained_fraction" not in metrics:
        return "-"
    share = short_percent(metrics["trained_fraction"].value)
    return f"{plain(metrics['trained_parameters'].value)} ({share})"


def _percent(estimate: Estimate | None) -> str:
    return percent(estimate.value if estimate else None)


def _plain(estimate: Estimate | None) -> str:
    return plain(estimate.value) if estimate else "-"
