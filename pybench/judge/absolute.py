"""A point's own figures against absolute limits: the suite's, or those of an expected table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybench.compute.flops import model_class
from pybench.judge.scaling import closeness, fits
from pybench.judge.verdict import judge_value, limits
from pybench.model.expected import ExpectedRow, ExpectedTable
from pybench.model.machine import Machine
from pybench.model.results import CheckResult, PointResult
from pybench.model.suite import Expectation, Plan, Point, Suite
from pybench.model.workloads.registry import METRICS


def absolute_checks(
    suite: Suite,
    plan: Plan,
    points: Sequence[PointResult],
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
) -> tuple[CheckResult, ...]:
    """One row for each absolute expectation and planned point of its benchmark."""
    left_out = {skip.id for skip in plan.left_out}
    planned = {point.id: point for point in plan.points}
    return tuple(
        _check(expectation, point)
        if expectation.table is None
        else _table_check(expectation, point, planned.get(point.id), tables[expectation.table], machine)
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        if expectation.along is None and expectation.below is None and expectation.above is None
        for point in points
        if point.benchmark == benchmark.name and point.id not in left_out
    )


def absolute_row(table: ExpectedTable, point: Point, metric: str, machine: Machine) -> ExpectedRow | None:
    """The closest row whose figure is the metric itself and holds for the point's settings, or ``None``.

    As for ratios the closest machine wins, then the most keys, then measured before published; before all that, the
    row that names more of the point's settings, and a figure of exactly so many GPUs before one of each GPU.
    """
    wanted = {
        "machine": machine.kind,
        "fabric": machine.fabric,
        "backend": point.settings.backend,
        "model_class": model_class(point.shape) if point.shape else "",
        "workload": point.settings.workload,
        "metric": metric,
    }
    settings = point.settings.to_json()
    fitting = [
        row
        for row in table.rows
        if row.unit is not None and fits(row, wanted) and _holds_for(row, settings, point.num_gpus)
    ]
    return max(fitting, key=lambda row: (len(row.where), not row.per_gpu, closeness(row)), default=None)


def _holds_for(row: ExpectedRow, settings: Mapping[str, object], count: int) -> bool:
    enough = row.count <= count if row.per_gpu else row.count == count
    return enough and all(settings.get(name) == value for name, value in row.where.items())


def _table_check(
    expectation: Expectation, result: PointResult, point: Point | None, table: ExpectedTable, machine: Machine
) -> CheckResult:
    """Held to the worse side alone, as ratios are: beyond the better side is a pass."""
    row = absolute_row(table, point, expectation.metric, machine) if point is not None else None
    if row is None:
        return _no_row(expectation, result, table, machine)
    minimum, maximum = limits(row)
    more = METRICS[expectation.metric].higher_is_better
    check = _check(
        Expectation(metric=expectation.metric, minimum=minimum if more else None, maximum=None if more else maximum),
        result,
    )
    return CheckResult(**{**vars(check), "table": table.name, "source": row.source})


def _no_row(expectation: Expectation, result: PointResult, table: ExpectedTable, machine: Machine) -> CheckResult:
    """A worker that broke is an error all the same; what can't run here is not missing: nothing is known to be."""
    nothing = f"table {table.name} has no figure for this point on {machine.kind}"
    return CheckResult(
        benchmark=result.benchmark,
        metric=expectation.metric,
        point_id=result.id,
        value=result.metrics.get(expectation.metric),
        minimum=None,
        maximum=None,
        verdict="error" if result.status == "failed" else "no_expectation",
        reason=result.reason or nothing,
        table=table.name,
    )


def _check(expectation: Expectation, point: PointResult) -> CheckResult:
    value = point.metrics.get(expectation.metric)
    verdict, reason = judge_value(value, expectation.minimum, expectation.maximum)
    if value is None and point.status == "failed":
        verdict, reason = "error", point.reason or ""
    elif value is None and point.reason:
        reason = point.reason
    return CheckResult(
        benchmark=point.benchmark,
        metric=expectation.metric,
        point_id=point.id,
        value=value,
        minimum=expectation.minimum,
        maximum=expectation.maximum,
        verdict=verdict,
        reason=reason,
    )
