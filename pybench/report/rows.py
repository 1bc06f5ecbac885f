"""What the tables of every human report say, as plain cells; each report only draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pybench.model.metrics.registry import METRICS
from pybench.model.results import PointResult, Results, ScalingResult
from pybench.report.labels import common_axes, labels
from pybench.report.numbers import interval, limits, percent, plain, quantity, quantity_with_interval
from pybench.report.training import HEADS, training_rows

# The first of these that a point has is its headline figure.
_HEADLINES = ("output_tokens_per_s", "tokens_per_s", "samples_per_s", "step_s")
_ENERGIES = ("energy_j_per_output_token", "energy_j_per_token", "energy_j_per_sample")


@dataclass(frozen=True)
class Table:
    """Title, column heads, cells."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(results: Results) -> tuple[Table, ...]:
    """Every table that has rows: points, training, scaling, checks, energy of each GPU."""
    names = labels(results.points)
    trained = Table("Training, the fastest first", HEADS, training_rows(results.points, names))
    everything = (
        _points(results, names),
        trained,
        _scaling(results, names),
        _checks(results, names),
        _energy(results, names),
    )
    return tuple(table for table in everything if table.rows)


def _points(results: Results, names: Mapping[str, str]) -> Table:
    heads = (
        "point",
        "status",
        "GPUs",
        "attempts",
        "throughput",
        "first token",
        "per token",
        "energy",
        "power",
        "notes",
    )
    shared = ", ".join(common_axes(results.points))
    return Table(
        f"Points: all of {shared}" if shared else "Points",
        heads,
        tuple(_point(point, names[point.id]) for point in results.points),
    )


def _point(point: PointResult, name: str) -> tuple[str, ...]:
    metrics = point.metrics
    headline = next((metrics[name] for name in _HEADLINES if name in metrics), None)
    energy = next((metrics[name] for name in _ENERGIES if name in metrics), None)
    attempts = f"{point.attempts - point.failed_attempts}/{point.attempts}" if point.attempts else "-"
    return (
        name,
        point.status,
        str(point.num_gpus),
        attempts,
        quantity_with_interval(headline),
        quantity(metrics.get("ttft_s")),
        quantity(metrics.get("tpot_s")),
        quantity(energy),
        quantity(metrics.get("mean_power_w")),
        "; ".join([*([point.reason] if point.reason else []), *point.flags]),
    )


def _scaling(results: Results, names: Mapping[str, str]) -> Table:
    heads = ("point", "metric", "GPUs", "ratio", "95 % interval", "efficiency", "expected", "verdict", "reason")
    return Table(
        "Scaling", heads, tuple(_scaling_row(row, names.get(row.point_id, row.point_id)) for row in results.scaling)
    )


def _scaling_row(row: ScalingResult, name: str) -> tuple[str, ...]:
    return (
        name,
        row.metric,
        f"{row.baseline_count} → {row.count}",
        "-" if row.speedup is None else f"{row.speedup:.3f}x",
        interval(row.speedup_low, row.speedup_high),
        percent(row.efficiency),
        limits(row.expected.minimum, row.expected.maximum) if row.expected else "-",
        row.verdict,
        "; ".join((row.reason, *row.flags)),
    )


def _checks(results: Results, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            names.get(check.point_id, check.point_id),
            check.metric,
            quantity_with_interval(check.value),
            limits(check.minimum, check.maximum, METRICS[check.metric].unit if check.metric in METRICS else None),
            check.verdict,
            check.reason,
        )
        for check in results.checks
    )
    return Table("Limits", ("point", "metric", "found", "allowed", "verdict", "reason"), rows)


def _energy(results: Results, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (names[point.id], uuid, f"{plain(joules)} J")
        for point in results.points
        for uuid, joules in point.energy_by_gpu_j.items()
    )
    return Table("Energy of one step, by GPU (boards only)", ("point", "GPU", "energy"), rows)
