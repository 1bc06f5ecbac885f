"""The tables of every report for people; each report only draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pybench.core.node_faults import short_id
from pybench.core.numbers import interval, limits, percent, plain, quantity, quantity_with_interval, short_percent
from pybench.model.results import ComparisonResult, Estimate, PointResult, Results
from pybench.model.workloads.generate import PERCENTILES, percentile_name
from pybench.model.workloads.registry import LOADS, METRICS
from pybench.model.workloads.settings import NODES
from pybench.report.run.flags import relevant
from pybench.report.run.headline import (
    NONE,
    Expectations,
    energy,
    headline,
    headline_of,
    metric_text,
    requests_differ,
    speedup_text,
)
from pybench.report.run.work import claim_table, job_table
from pybench.report.table import Cell, Table
from pybench.report.text.change_words import metric_words, value_text
from pybench.report.text.labels import common_axes, labels, verdict_words

_LATENCIES = {"ttft": "first token", "tpot": "per token", "itl": "between tokens", "e2e": "end to end"}
_HZ_PER_MHZ = 1e6
Columns = Mapping[str, str | Callable[[PointResult], str]]
"""Columns of a table of points by their heads: a metric, or the text of a cell."""


def tables(results: Results, names: Mapping[str, str] | None = None) -> tuple[Table, ...]:
    """Every table that has rows. ``names`` are other labels of the points than :func:`labels` makes."""
    names = labels(results.points) if names is None else names
    gpus = gpu_names(results)
    used = [point for point in results.points if not point.metrics.keys().isdisjoint(_USES.values())]
    energies = (
        (names[point.id], gpus.get(uuid, uuid), f"{plain(joules)} J")
        for point in results.points
        for uuid, joules in point.energy_by_gpu_j.items()
    )
    every = (
        point_table(results, names),
        _latency(results, names),
        training_table(results, names),
        _scaling(results, names),
        _comparisons(results.comparisons, names),
        _checks(results, names),
        claim_table(results, names),
        job_table(results, names),
        _node(results, names),
        gpu_state_table(results, names),
        _of_points("Use of the machine", _USES, used, names),
        _turns(results, names),
        *_phases(results, names),
        Table("Energy of one step, by GPU (boards only)", ("point", "GPU", "energy"), tuple(energies)),
        Table("GPUs", ("GPU", "UUID"), tuple((name, uuid) for uuid, name in gpus.items())),
    )
    return tuple(table.without_empty_columns() for table in every if table.rows)


def _of_points(title: str, columns: Columns, points: Iterable[PointResult], names: Mapping[str, str]) -> Table:
    """A row for each of ``points``."""

    def cells(point: PointResult) -> tuple[str, ...]:
        return tuple(metric_text(point, cell) if isinstance(cell, str) else cell(point) for cell in columns.values())

    return Table(title, ("point", *columns), tuple((names[point.id], *cells(point)) for point in points))


def point_table(results: Results, names: Mapping[str, str]) -> Table:
    """Every point of the suite, measured or not."""
    wanted = Expectations(results)
    shared = ", ".join(common_axes(results.points))

    def attempts(point: PointResult) -> str:
        good = point.attempts - point.failed_attempts
        return Cell(f"{good} of {point.attempts}" if point.attempts else NONE, good)

    def throughput(point: PointResult) -> str:
        return _figure(headline(point), " per GPU" * (headline_of(point.metrics) or "").endswith("_per_gpu"))

    def speedup(point: PointResult) -> str:
        row = wanted.ratio(point)
        return NONE if row is None else _ratio(row.speedup, row.speedup_low, row.speedup_high)

    def expected(point: PointResult) -> str:
        row, check = wanted.ratio(point), wanted.check(point, headline_of(point.metrics))
        if row is not None and row.expected is not None:
            return limits(row.expected.minimum, row.expected.maximum)
        return NONE if check is None or check.value is None else limits(check.minimum, check.maximum, check.value.unit)

    def notes(point: PointResult) -> str:
        sharing = [f"process shared by {len(point.shared_with) + 1} points"] if point.shared_with else []
        return "; ".join([*([point.reason] if point.reason else []), *relevant(point), *sharing])

    columns: Columns = {
        "GPUs": lambda point: Cell(str(point.num_gpus), point.num_gpus),
        "attempts": attempts,
        "throughput": throughput,
        "speedup": speedup,
        "expected": expected,
        "first token": lambda point: _figure(point.metrics.get("ttft_s")),
        "per token": lambda point: _figure(point.metrics.get("tpot_s")),
        "energy": lambda point: _figure(energy(point)),
        "power": lambda point: _figure(point.metrics.get("mean_power_w")),
        "verdict": wanted.verdict,
        "notes": notes,
    }
    cells = {point.id: Cell(names[point.id], number) for number, point in enumerate(results.points)}
    return _of_points(f"Points: all of {shared}" if shared else "Points", columns, results.points, cells)


def _figure(figure: Estimate | None, of: str = "") -> str:
    """A figure with its interval as a note."""
    if figure is None:
        return NONE
    text, bracket, ends = quantity_with_interval(figure).partition(" [")
    return Cell(text + of, figure.value, f"[{ends}" if bracket else "")


def _ratio(value: float | None, low: float | None, high: float | None) -> str:
    return NONE if value is None else Cell(f"{value:.3f}x", value, interval(low, high))


def _latency(results: Results, names: Mapping[str, str]) -> Table:
    """Percentiles of points whose requests differ from each other."""
    rows = tuple(
        (names[point.id], noun, *(quantity(point.metrics.get(percentile_name(kind, of))) for of in PERCENTILES))
        for point in results.points
        if requests_differ(point)
        for kind, noun in _LATENCIES.items()
        if f"{kind}_p50_s" in point.metrics
    )
    return Table("Latency of requests", ("point", "time", *(f"p{of}" for of in PERCENTILES)), rows)


def training_table(results: Results, names: Mapping[str, str]) -> Table:
    """Every measured training, the fastest first. Equal figures share a rank; a figure of one point has none."""
    trained = [point for point in results.points if "tokens_per_s" in point.metrics]
    trained.sort(key=lambda point: -point.metrics["tokens_per_s"].value)

    def rank(point: PointResult, metric: str, sign: int = 1) -> str:
        values = [sign * other.metrics[metric].value for other in trained if metric in other.metrics]
        if metric not in point.metrics or len(values) == 1:
            return NONE
        return str(1 + sum(value < sign * point.metrics[metric].value for value in values))

    def adapters(point: PointResult) -> str:
        share = point.metrics.get("trained_fraction")
        return f"{metric_text(point, 'trained_parameters')} ({short_percent(share.value)})" if share else NONE

    columns: Columns = {
        "rank": partial(rank, metric="tokens_per_s", sign=-1),
        "tokens/s": "tokens_per_s",
        "per GPU": "flops_per_s_per_gpu",
        "MFU": "mfu_fraction",
        "HFU": "hfu_fraction",
        "memory": "peak_memory_bytes",
        "energy": "energy_j_per_token",
        "rank by memory": partial(rank, metric="peak_memory_bytes"),
        "rank by energy": partial(rank, metric="energy_j_per_token"),
        "batch per GPU": "batch_size_per_gpu",
        "trained": adapters,
        "exposed comm.": "exposed_communication_fraction",
        "straggler gap": "straggler_gap_fraction",
        "input wait": "input_wait_fraction",
        "evaluation": "evaluation_overhead_fraction",
        "loss": "loss",
    }
    return _of_points("Training, the fastest first", columns, trained, names)


def _scaling(results: Results, names: Mapping[str, str]) -> Table:
    several = len({row.metric for row in results.scaling}) > 1
    rows = tuple(
        (
            names.get(row.point_id, row.point_id),
            metric_words(row.metric) if several else row.metric,
            f"{row.baseline_count} → {row.count}{' nodes' if row.along == NODES else ''}",
            _ratio(row.speedup, row.speedup_low, row.speedup_high),
            percent(row.efficiency),
            limits(row.expected.minimum, row.expected.maximum) if row.expected else NONE,
            verdict_words(row.verdict),
            "; ".join((row.reason, *row.flags)),
        )
        for row in results.scaling
    )
    heads = ("point", "metric", "GPUs", "ratio", "efficiency", "expected", "verdict", "reason")
    return Table("Scaling", heads, rows).with_one_metric("Scaling of {}")


def comparisons(results: Results, names: Mapping[str, str]) -> Table:
    """Comparisons of points in the plan: the expected order and the ratio with its spread."""
    skipped = {point.id for point in results.points if point.status in {"skipped", "does_not_fit"}}
    planned = [row for row in results.comparisons if skipped.isdisjoint(row.point_ids)]
    return _comparisons(planned, names, speedup_text).without(("reason",))


def _comparisons(
    compared: Sequence[ComparisonResult], names: Mapping[str, str], text: Callable[..., str] = _ratio
) -> Table:
    rows = tuple(
        (
            names.get(row.point_id, row.point_id),
            row.metric,
            f"{row.wanted} {names.get(row.other_id, row.other_id)}",
            text(row.ratio, row.low, row.high),
            verdict_words(row.verdict),
            "; ".join((row.reason, *row.flags)),
        )
        for row in compared
    )
    heads = ("point", "metric", "expected", "ratio", "verdict", "reason")
    return Table("Comparisons", heads, rows).with_one_metric("Comparisons of {}")


def _checks(results: Results, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            names.get(check.point_id, check.point_id),
            check.metric,
            _figure(check.value),
            limits(check.minimum, check.maximum, METRICS[check.metric].unit if check.metric in METRICS else None),
            verdict_words(check.verdict),
            check.reason,
        )
        for check in results.checks
    )
    return Table("Limits", ("point", "metric", "found", "allowed", "verdict", "reason"), rows)


def _node(results: Results, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            check.name,
            short_id(check.subject),
            NONE if check.point_id is None else names.get(check.point_id, check.point_id),
            verdict_words(check.verdict),
            short_id(check.reason),
        )
        for check in results.node
    )
    return Table("Node", ("check", "GPU or link", "point", "verdict", "reason"), rows)


def gpu_names(results: Results) -> dict[str, str]:
    """Short name of each GPU by its UUID: its index where a sensor reported it, else the start of its UUID."""
    indices = {gpu.uuid: gpu.index for point in results.points for gpu in point.gpu_states}
    uuids = dict.fromkeys(uuid for point in results.points for uuid in (*point.energy_by_gpu_j, *indices))
    return {uuid: _gpu_name(uuid, indices.get(uuid)) for uuid in uuids}


def _gpu_name(uuid: str, index: int | None) -> str:
    return "-".join(uuid.split("-")[:2]) if index is None else f"GPU {index}"


def gpu_state_table(results: Results, names: Mapping[str, str]) -> Table:
    """Clock and temperature of each GPU at points with a steady load: elsewhere a clock shows pauses as well."""
    rows = tuple(
        (
            names[point.id],
            _gpu_name(gpu.uuid, gpu.index),
            NONE if gpu.sm_clock_hz is None else f"{gpu.sm_clock_hz / _HZ_PER_MHZ:,.0f} MHz",
            NONE if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
            NONE if gpu.held_by is None else ", ".join(gpu.held_by) or "nothing",
        )
        for point in results.points
        if any(metric in point.metrics for metric in LOADS)
        for gpu in point.gpu_states
    )
    return Table("GPUs under load", ("point", "GPU", "SM clock", "temperature", "held by"), rows)


_USES = {
    "MFU": "mfu_fraction",
    "MBU": "mbu_fraction",
    "GPUs' energy apart by": "energy_imbalance_fraction",
    "NVLink of a GPU": "nvlink_bytes_per_s_per_gpu",
    "stages wait": "stage_idle_fraction",
    "stages apart by": "stage_imbalance_fraction",
    "KV cache": "kv_cache_tokens",
    "at a time": "num_running",
    "preemptions": "num_preemptions",
    "prefix hits": "prefix_hit_fraction",
}
_TURNS = {"turn": "turn_s", "switch": "switch_s", "share": "switch_fraction", "first sleep": "first_sleep_s"}
_IDLE = "idle_gpu_fraction"


def _turns(results: Results, names: Mapping[str, str]) -> Table:
    """One row for each point that took turns; idle GPUs only where some have waited."""
    taken = [point for point in results.points if "turn_s" in point.metrics]
    waited = any(point.metrics[_IDLE].value > 0 for point in taken if _IDLE in point.metrics)
    columns = {**_TURNS, "idle": _IDLE} if waited else _TURNS
    return _of_points("Turns: the switch and its share", columns, taken, names)


def _phases(results: Results, names: Mapping[str, str]) -> tuple[Table, ...]:
    """Phases whose memory was read, on a CPU that of its processes; phases whose energy is known; flags of these."""
    phases = [
        ((names[point.id], phase.name, value_text(phase.duration_s, "s")), phase)
        for point in results.points
        for phase in point.energy_phases
    ]
    memories = tuple(
        (*cells, value_text(phase.device_bytes, "bytes"), value_text(phase.host_bytes, "bytes"))
        for cells, phase in phases
        if phase.device_bytes is not None
    )
    energies = tuple(
        (*cells, f"{plain(phase.energy_j)} J", interval(phase.low_j, phase.high_j))
        for cells, phase in phases
        if phase.energy_j is not None
    )
    having: dict[tuple[str, str], list[str]] = {}
    for (name, phase_name, _), phase in phases:
        for flag in phase.flags if phase.energy_j is not None else ():
            having.setdefault((name, flag), []).append(phase_name)
    notes = tuple((name, flag, ", ".join(phase_names)) for (name, flag), phase_names in having.items())
    heads, title = ("point", "phase", "time"), "Phases of one step: time, and memory in use at the end"
    return (
        Table(title, (*heads, "fullest GPU", "pinned host"), memories),
        Table("Energy of one step, by phase (boards only)", (*heads, "energy", "sensor's bound"), energies),
        Table("Notes on the energy of phases", ("point", "note", "phases"), notes),
    )
