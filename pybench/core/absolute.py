"""A point's own figures against absolute limits: the suite's, or those of an expected table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pybench.core.lookup import claim_result, context_of, figure_row, no_row
from pybench.core.measurements import Measurements, absence
from pybench.core.validity import valid_figure
from pybench.core.verdict import judge_value, value_statistics
from pybench.model.expected import ExpectedTable, FigureRow, provisional
from pybench.model.machine import Machine
from pybench.model.results import CheckResult, ClaimResult, PointResult
from pybench.model.suite import Limits, Point, Suite, TableFigure
from pybench.model.workloads.registry import METRICS


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One absolute expectation on one point; ``point`` is ``None`` where it can't run."""

    expectation: Limits | TableFigure
    result: PointResult
    point: Point | None


def absolute_checks(
    suite: Suite,
    measurements: Measurements,
    points: Sequence[PointResult],
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
) -> tuple[CheckResult, ...]:
    """One row for each absolute expectation and planned point of its benchmark."""
    return tuple(
        _check(measurements, judged, (judged.expectation.minimum, judged.expectation.maximum))
        if isinstance(judged.expectation, Limits)
        else _table_check(measurements, judged, tables[judged.expectation.table], machine)
        for judged in _all(suite, measurements, points)
    )


def absolute_claims(
    suite: Suite,
    measurements: Measurements,
    points: Sequence[PointResult],
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
) -> tuple[ClaimResult, ...]:
    """Claims of tables about figures, each with the measured figure."""
    return tuple(
        claim
        for judged in _all(suite, measurements, points)
        if isinstance(judged.expectation, TableFigure)
        and (claim := _claim(measurements, judged, tables[judged.expectation.table], machine)) is not None
    )


def _all(suite: Suite, measurements: Measurements, points: Sequence[PointResult]) -> Iterator[_Judged]:
    left_out = {skip.id for skip in measurements.plan.left_out}
    planned = {point.id: point for point in measurements.plan.points}
    for benchmark in suite.benchmarks:
        for expectation in benchmark.expectations:
            if isinstance(expectation, Limits | TableFigure):
                yield from (
                    _Judged(expectation=expectation, result=result, point=planned.get(result.id))
                    for result in points
                    if result.benchmark == benchmark.name
                    and result.id not in left_out
                    and (isinstance(expectation, Limits) or expectation.is_for(result.num_gpus))
                )


def absolute_row(
    table: ExpectedTable, point: Point, metric: str, machine: Machine, *, claims: bool = False
) -> FigureRow | None:
    """The closest row whose figure is the metric itself and holds for the point's settings, or ``None``."""
    context = context_of(machine, metric, point.settings.to_json(), point.shape)
    return figure_row(table, context, point.num_gpus, claims=claims)


def _claim(measurements: Measurements, judged: _Judged, table: ExpectedTable, machine: Machine) -> ClaimResult | None:
    result, metric, point = judged.result, judged.expectation.metric, judged.point
    row = absolute_row(table, point, metric, machine, claims=True) if point else None
    if row is None or metric not in result.metrics or point is None:
        return None
    evidence = value_statistics(measurements, metric, point)
    _, low, high = evidence.interval
    figure = replace(result.metrics[metric], low=low, high=high)
    return claim_result(result.benchmark, row, table.name, result.id, None, figure, evidence)


def _table_check(measurements: Measurements, judged: _Judged, table: ExpectedTable, machine: Machine) -> CheckResult:
    """Checked on the worse side alone, as ratios are: a figure beyond the better side passes."""
    metric = judged.expectation.metric
    row = absolute_row(table, judged.point, metric, machine) if judged.point is not None else None
    if row is None:
        nodes = judged.point.settings.num_nodes if judged.point is not None else 1
        return replace(_check(measurements, judged, None, no_row(table.name, machine, nodes)), table=table.name)
    limits = (row.limits[0], None) if METRICS[metric].higher_is_better else (None, row.limits[1])
    check = _check(measurements, judged, limits)
    without = "row taken without NVLink SHARP" if (row.nvls, machine.nvls) == ("off", "on") else ""
    notes = () if check.value is None else (provisional(row.hosts), without)
    reason = "; ".join(filter(None, (check.reason, *notes)))
    return replace(check, table=table.name, source=row.source, reason=reason, hosts=row.hosts)


def _check(
    measurements: Measurements, judged: _Judged, limits: tuple[float | None, float | None] | None, unjudged: str = ""
) -> CheckResult:
    """A check against limits; without any *no_expectation*, for the reason ``unjudged``.

    A point without a figure has its own reason, since a row would not help. It is an *error* where the worker failed.
    """
    result, metric = judged.result, judged.expectation.metric
    value, (minimum, maximum) = result.metrics.get(metric), limits or (None, None)
    missing = absence(judged.point, metric, measurements) if judged.point and result.reason is None else None
    check = CheckResult(
        benchmark=result.benchmark,
        metric=metric,
        point_id=result.id,
        value=value,
        minimum=minimum,
        maximum=maximum,
        verdict="error" if result.status == "failed" else "missing" if limits else "no_expectation",
        reason=result.reason or (missing[1] if missing else unjudged),
    )
    if value is None or judged.point is None or limits is None:
        return check
    evidence = value_statistics(measurements, metric, judged.point)
    verdict, reason, decided = judge_value(evidence, value.unit, minimum, maximum)
    verdict, reason, _, decision = valid_figure((verdict, reason, (), decided), measurements, (judged.point,))
    return replace(check, verdict=verdict, reason=reason, decision=decision)
