"""A point's own figures against absolute limits: the suite's, or those of an expected table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pybench.core.lookup import claim_result, context_of, figure_row, no_row
from pybench.core.measurements import Measurements, absence
from pybench.core.validity import validated
from pybench.core.verdict import judge_value, row_statistics
from pybench.model.machine import Machine
from pybench.model.results import CheckResult, ClaimResult, PointResult
from pybench.model.suite import ExpectedTable, FigureRow, Limits, Point, Suite, TableFigure, provisional
from pybench.model.workloads.registry import METRICS


def absolute_checks(
    suite: Suite,
    measurements: Measurements,
    points: Sequence[PointResult],
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
) -> tuple[CheckResult, ...]:
    """One row for each absolute expectation and planned point of its benchmark."""
    left_out = {skip.id for skip in measurements.plan.left_out}
    planned = {point.id: point for point in measurements.plan.points}
    return tuple(
        _check(measurements, expectation, result, planned.get(result.id), tables, machine)
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        for result in points
        if isinstance(expectation, Limits | TableFigure)
        and result.benchmark == benchmark.name
        and result.id not in left_out
        and (isinstance(expectation, Limits) or expectation.gpus in {None, result.num_gpus})
    )


def absolute_row(
    table: ExpectedTable, point: Point, metric: str, machine: Machine, *, claims: bool = False
) -> FigureRow | None:
    """The closest row whose figure is the metric itself and holds for the point's settings, or ``None``."""
    context = context_of(machine, metric, point.settings.to_json(), point.shape)
    return figure_row(table, context, point.num_gpus, claims=claims)


def _check(
    measurements: Measurements,
    expectation: Limits | TableFigure,
    result: PointResult,
    point: Point | None,
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
) -> CheckResult:
    """A check against limits; without any *no_expectation*. ``point`` is ``None`` where it can't run.

    A point without a figure has its own reason, since a row would not help. It is an *error* where the worker failed.
    By a table it is checked on the worse side alone, as ratios are: a figure beyond the better side passes.
    """
    metric, value, row, unjudged = expectation.metric, result.metrics.get(expectation.metric), None, ""
    limits: tuple[float | None, float | None] | None = None
    if isinstance(expectation, Limits):
        limits = expectation.minimum, expectation.maximum
    elif point and (row := absolute_row(tables[expectation.table], point, metric, machine)):
        limits = (row.limits[0], None) if METRICS[metric].higher_is_better else (None, row.limits[1])
    else:
        unjudged = no_row(expectation.table, machine, point.settings.num_nodes if point else 1)
    missing = absence(point, metric, measurements) if point and result.reason is None else None
    minimum, maximum = limits or (None, None)
    check = CheckResult(
        benchmark=result.benchmark,
        metric=metric,
        point_id=result.id,
        value=value,
        minimum=minimum,
        maximum=maximum,
        verdict="error" if result.status == "failed" else "missing" if limits else "no_expectation",
        reason=result.reason or (missing[1] if missing else unjudged),
        table=expectation.table if isinstance(expectation, TableFigure) else None,
        source=row.source if row else None,
        hosts=row.hosts if row else None,
    )
    if value is None or point is None or limits is None:
        return check
    judgement = judge_value(row_statistics(measurements, metric, [point]), value.unit, minimum, maximum)
    verdict, reason, _, decision = validated(judgement, measurements, [point], is_ratio=False)
    if row is not None:
        without = "row taken without NVLink SHARP" if (row.nvls, machine.nvls) == ("off", "on") else ""
        reason = "; ".join(filter(None, (reason, provisional(row.hosts), without)))
    return replace(check, verdict=verdict, reason=reason, decision=decision)


def absolute_claims(
    measurements: Measurements, tables: Mapping[str, ExpectedTable], machine: Machine, checks: Sequence[CheckResult]
) -> Iterator[ClaimResult]:
    """Claims of tables about figures, each with the measured figure among ``checks``."""
    planned = {point.id: point for point in measurements.plan.points}
    for check in checks:
        if check.table is None or check.value is None:
            continue
        point = planned[check.point_id]
        if row := absolute_row(tables[check.table], point, check.metric, machine, claims=True):
            evidence = row_statistics(measurements, check.metric, [point])
            yield claim_result(check.benchmark, row, check.table, (check.point_id, None), check.value, evidence)
