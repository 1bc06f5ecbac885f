"""The tables of every report for people, as plain cells; each report only draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pybench.core.node.faults import short_id
from pybench.core.numbers import (
    ONE,
    interval,
    limits,
    percent,
    plain,
    quantity,
    quantity_with_interval,
    with_spread,
)
from pybench.model.results import ComparisonResult, Estimate, PointResult, Results, ScalingResult
from pybench.model.workloads.latency import PERCENTILES, percentile_name
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import NODES
from pybench.report.run import use
from pybench.report.run.headline import energy, headline, headline_name, requests_differ
from pybench.report.run.work import (
    CLAIM_HEADS,
    CLAIMS_TITLE,
    TRAINING_HEADS,
    claim_rows,
    job_heads,
    job_rows,
    job_title,
    training_rows,
)
from pybench.report.table import Table
from pybench.report.text.labels import common_axes, labels, short_labels, verdict_words


def tables(results: Results, names: Mapping[str, str] | None = None) -> tuple[Table, ...]:
    """Every table that has rows: points, latency, training, scaling, orders, limits, the node, use, energy.

    ``names`` are other labels of the points than :func:`labels` makes.
    """
    names = labels(results.points) if names is None else names
    draw = (
        _points,
        _latency,
        _training,
        _scaling,
        _comparisons,
        _checks,
        _claims,
        _jobs,
        _node,
        _gpu_states,
        _use,
        _turns,
        _phase_memory,
        _phases,
        _phase_notes,
        _energy,
        _gpus,
    )
    everything = (one(results, names) for one in draw)
    return tuple(table.without_empty_columns() for table in everything if table.rows)


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
    attempts = f"{point.attempts - point.failed_attempts}/{point.attempts}" if point.attempts else "-"
    return (
        name,
        point.status,
        str(point.num_gpus),
        attempts,
        _figure(point),
        quantity(metrics.get("ttft_s")),
        quantity(metrics.get("tpot_s")),
        quantity(energy(point)),
        quantity(metrics.get("mean_power_w")),
        "; ".join([*([point.reason] if point.reason else []), *point.flags, *_sharing(point)]),
    )


def _figure(point: PointResult) -> str:
    """The headline with its interval, and whether it is of one GPU."""
    of_one = (headline_name(point) or "").endswith("_per_gpu")
    return f"{quantity_with_interval(headline(point))}{' per GPU' * of_one}"


def _sharing(point: PointResult) -> list[str]:
    return [f"process shared by {len(point.shared_with) + 1} points"] if point.shared_with else []


def _latency(results: Results, names: Mapping[str, str]) -> Table:
    """Percentiles of points whose requests differ from each other."""
    kinds = {"ttft": "first token", "tpot": "per token", "itl": "between tokens", "e2e": "end to end"}
    rows = tuple(
        (
            names[point.id],
            noun,
            *(quantity(point.metrics.get(percentile_name(kind, percent))) for percent in PERCENTILES),
        )
        for point in results.points
        if requests_differ(point)
        for kind, noun in kinds.items()
        if f"{kind}_p50_s" in point.metrics
    )
    return Table("Latency of requests", ("point", "time", *(f"p{percent}" for percent in PERCENTILES)), rows)


def _training(results: Results, names: Mapping[str, str]) -> Table:
    return Table("Training, the fastest first", TRAINING_HEADS, training_rows(results.points, names))


def _scaling(results: Results, names: Mapping[str, str]) -> Table:
    heads = ("point", "metric", "GPUs", "ratio", "95 % interval", "efficiency", "expected", "verdict", "reason")
    return Table(
        "Scaling", heads, tuple(_scaling_row(row, names.get(row.point_id, row.point_id)) for row in results.scaling)
    )


def _scaling_row(row: ScalingResult, name: str) -> tuple[str, ...]:
    return (
        name,
        row.metric,
        f"{row.baseline_count} → {row.count}{' nodes' if row.along == NODES else ''}",
        "-" if row.speedup is None else f"{row.speedup:.3f}x",
        interval(row.speedup_low, row.speedup_high),
        percent(row.efficiency),
        limits(row.expected.minimum, row.expected.maximum) if row.expected else "-",
        verdict_words(row.verdict),
        "; ".join((row.reason, *row.flags)),
    )


def comparisons(results: Results) -> Table:
    """Comparisons of points: the expected order and the ratio. Both are in the plan."""
    names = short_labels(results.points, with_benchmark=True)
    skipped = {point.id for point in results.points if point.status in {"skipped", "does_not_fit"}}
    rows = tuple(
        (
            names.get(row.point_id, row.point_id),
            row.metric,
            f"{row.wanted} {names.get(row.other_id, row.other_id)}",
            "-" if row.ratio is None else _ratio_with_spread(row),
            verdict_words(row.verdict),
        )
        for row in results.comparisons
        if skipped.isdisjoint(row.point_ids)
    )
    table = Table("Comparisons", ("point", "metric", "expected", "ratio", "verdict"), rows)
    return _with_one_metric(table, "Comparisons of {}")


def _with_one_metric(table: Table, title: str) -> Table:
    """With the metric in the title, where all rows are of the same one."""
    place = table.heads.index("metric")
    metrics = {row[place] for row in table.rows}
    if len(metrics) != 1:
        return table
    others = table.of_columns([other for other in range(len(table.heads)) if other != place])
    return replace(others, title=title.format(*metrics))


def _ratio_with_spread(row: ComparisonResult) -> str:
    found = Estimate(value=row.ratio or 0.0, low=row.low, high=row.high, unit="")
    return with_spread(found, ONE)


def _comparisons(results: Results, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            names.get(row.point_id, row.point_id),
            row.metric,
            f"{row.wanted} {names.get(row.other_id, row.other_id)}",
            "-" if row.ratio is None else f"{row.ratio:.3f}x",
            interval(row.low, row.high),
            verdict_words(row.verdict),
            "; ".join((row.reason, *row.flags)),
        )
        for row in results.comparisons
    )
    return Table("Comparisons", ("point", "metric", "expected", "ratio", "95 % interval", "verdict", "reason"), rows)


def claims(results: Results) -> Table:
    """Claims beside the figures; they judge nothing. A source stands below its rows."""
    table = _claims(results, short_labels(results.points, with_benchmark=True))
    below = (*(row[-1] for row in table.rows[1:]), None)
    rows = ((*row[:-1], "" if row[-1] == after else row[-1]) for row, after in zip(table.rows, below, strict=False))
    table = _with_one_metric(replace(table, rows=tuple(rows)), "Claims of {}, which judge nothing")
    return table.without_empty_columns()


def _claims(results: Results, names: Mapping[str, str]) -> Table:
    return Table(CLAIMS_TITLE, CLAIM_HEADS, tuple(claim_rows(results, names)))


def jobs(results: Results) -> Table:
    """Time and energy of a whole training job on each number of GPUs."""
    return _jobs(results, short_labels(results.points, with_benchmark=True)).without_empty_columns()


def _jobs(results: Results, names: Mapping[str, str]) -> Table:
    return Table(job_title(results.jobs), job_heads(results.jobs), job_rows(results, names))


def _checks(results: Results, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            names.get(check.point_id, check.point_id),
            check.metric,
            quantity_with_interval(check.value),
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
            "-" if check.point_id is None else names.get(check.point_id, check.point_id),
            verdict_words(check.verdict),
            short_id(check.reason),
        )
        for check in results.node
    )
    return Table("Node", ("check", "GPU or link", "point", "verdict", "reason"), rows)


def _gpu_states(results: Results, names: Mapping[str, str]) -> Table:
    return Table("GPUs under load", use.STATE_HEADS, tuple(use.gpu_state_rows(results, names)))


def _use(results: Results, names: Mapping[str, str]) -> Table:
    heads, rows = use.use_table(results, names)
    return Table("Use of the machine", heads, rows)


def _phases(results: Results, names: Mapping[str, str]) -> Table:
    title = "Energy of one step, by phase (boards only)"
    return Table(title, use.ENERGY_HEADS, tuple(use.energy_rows(results, names)))


def _phase_notes(results: Results, names: Mapping[str, str]) -> Table:
    rows = tuple(use.note_rows(results, names))
    return Table("Notes on the energy of phases", use.NOTE_HEADS, rows)


def _turns(results: Results, names: Mapping[str, str]) -> Table:
    heads, rows = use.turn_table(results, names)
    return Table(use.TURN_TITLE, heads, rows)


def _phase_memory(results: Results, names: Mapping[str, str]) -> Table:
    title = "Phases of one step: time, and memory in use at the end"
    return Table(title, use.PHASE_HEADS, tuple(use.phase_rows(results, names)))


def _energy(results: Results, names: Mapping[str, str]) -> Table:
    gpus = use.gpu_names(results)
    rows = tuple(
        (names[point.id], gpus.get(uuid, uuid), f"{plain(joules)} J")
        for point in results.points
        for uuid, joules in point.energy_by_gpu_j.items()
    )
    return Table("Energy of one step, by GPU (boards only)", ("point", "GPU", "energy"), rows)


def _gpus(results: Results, _names: Mapping[str, str]) -> Table:
    return Table("GPUs", ("GPU", "UUID"), use.gpu_rows(results))
