"""The tables of every report for people; each report only draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pybench.core.node_faults import short_id
from pybench.core.numbers import interval, limits, percent, quantity, quantity_with_interval
from pybench.model.results import ComparisonResult, Estimate, PointResult, Results, ScalingResult
from pybench.model.workloads.generate import PERCENTILES, percentile_name
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import NODES
from pybench.report.run import use
from pybench.report.run.flags import relevant
from pybench.report.run.headline import (
    NONE,
    Expectations,
    energy,
    headline,
    headline_name,
    requests_differ,
    speedup_text,
)
from pybench.report.run.work import claim_table, job_table, training_table
from pybench.report.table import Cell, Table
from pybench.report.text.change_words import metric_words
from pybench.report.text.labels import common_axes, labels, short_labels, verdict_words

_LATENCIES = {"ttft": "first token", "tpot": "per token", "itl": "between tokens", "e2e": "end to end"}


def tables(results: Results, names: Mapping[str, str] | None = None) -> tuple[Table, ...]:
    """Every table that has rows. ``names`` are other labels of the points than :func:`labels` makes."""
    names = labels(results.points) if names is None else names
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
        use.gpu_state_table(results, names),
        use.use_table(results, names),
        use.turn_table(results, names),
        use.phase_table(results, names),
        use.phase_energy_table(results, names),
        use.phase_note_table(results, names),
        use.gpu_energy_table(results, names),
        Table("GPUs", ("GPU", "UUID"), tuple((name, uuid) for uuid, name in use.gpu_names(results).items())),
    )
    return tuple(table.without_empty_columns() for table in every if table.rows)


def point_table(results: Results, names: Mapping[str, str]) -> Table:
    """Every point of the suite, measured or not."""
    wanted = Expectations.of(results)
    shared = ", ".join(common_axes(results.points))
    return Table(
        f"Points: all of {shared}" if shared else "Points",
        (
            *("point", "GPUs", "attempts", "throughput", "speedup", "expected"),
            *("first token", "per token", "energy", "power", "verdict", "notes"),
        ),
        tuple(_point(wanted, point, Cell(names[point.id], number)) for number, point in enumerate(results.points)),
    )


def _point(wanted: Expectations, point: PointResult, name: Cell) -> tuple[str, ...]:
    metrics, row = point.metrics, wanted.ratio(point)
    good = point.attempts - point.failed_attempts
    of_one = " per GPU" * (headline_name(point) or "").endswith("_per_gpu")
    sharing = [f"process shared by {len(point.shared_with) + 1} points"] if point.shared_with else []
    return (
        name,
        Cell(str(point.num_gpus), point.num_gpus),
        Cell(f"{good} of {point.attempts}" if point.attempts else NONE, good),
        _figure(headline(point), of_one),
        NONE if row is None else _ratio(row.speedup, row.speedup_low, row.speedup_high),
        _expected(wanted, point, row),
        _figure(metrics.get("ttft_s")),
        _figure(metrics.get("tpot_s")),
        _figure(energy(point)),
        _figure(metrics.get("mean_power_w")),
        wanted.verdict(point),
        "; ".join([*([point.reason] if point.reason else []), *relevant(point), *sharing]),
    )


def _figure(figure: Estimate | None, of: str = "") -> str:
    """A figure with its interval as a note."""
    if figure is None:
        return NONE
    text, bracket, ends = quantity_with_interval(figure).partition(" [")
    return Cell(text + of, figure.value, f"[{ends}" if bracket else "")


def _ratio(value: float | None, low: float | None, high: float | None) -> str:
    return NONE if value is None else Cell(f"{value:.3f}x", value, interval(low, high))


def _expected(wanted: Expectations, point: PointResult, row: ScalingResult | None) -> str:
    if row is not None and row.expected is not None:
        return limits(row.expected.minimum, row.expected.maximum)
    check = wanted.check(point, headline_name(point))
    return NONE if check is None or check.value is None else limits(check.minimum, check.maximum, check.value.unit)


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


def comparisons(results: Results) -> Table:
    """Comparisons of points in the plan: the expected order and the ratio with its spread."""
    skipped = {point.id for point in results.points if point.status in {"skipped", "does_not_fit"}}
    planned = [row for row in results.comparisons if skipped.isdisjoint(row.point_ids)]
    table = _comparisons(planned, short_labels(results.points, with_benchmark=True), speedup_text)
    return table.without(("reason",))


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
