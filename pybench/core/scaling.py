"""Speedup and efficiency against the baseline point of the same run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pybench.core.lookup import NO_TABLE, claim_result, context_of, no_row, ratio_row
from pybench.core.measurements import Measurements, absence, grouped
from pybench.core.numbers import percent
from pybench.core.plan import point_id
from pybench.core.statistics.interval import Interval, Samples, location
from pybench.core.validity import judged_points
from pybench.core.verdict import Judgement, RowStatistics, judge_ratio, row_statistics
from pybench.model.machine import Machine
from pybench.model.results import ClaimResult, Estimate, ScalingResult
from pybench.model.suite import AxisValue, Benchmark, ExpectedTable, Point, RatioRow, Scaling, Skip, Suite
from pybench.model.verdict import Expected, Prediction
from pybench.model.workloads.registry import METRICS, SETTINGS_OF
from pybench.model.workloads.settings import NODES, REST, ModelSettings, defaults


@dataclass(frozen=True)
class _Context:
    """Everything a row is made from."""

    benchmark: Benchmark
    expectation: Scaling
    measurements: Measurements
    table: ExpectedTable | None
    machine: Machine
    predictions: Mapping[tuple[str, str], Prediction]

    @property
    def apart(self) -> set[str]:
        """Axes in which the points of one group differ: nodes bring GPUs, which ``rest`` fills."""
        return {self.expectation.along, *(name for name, value in self.benchmark.settings.items() if value == REST)}

    def group(self, entry: Point | Skip) -> dict[str, AxisValue]:
        """Axes that all points of the entry's group have in common."""
        return {name: value for name, value in entry.axes.items() if name not in self.apart}


def scaling_results(
    suite: Suite,
    measurements: Measurements,
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
    predictions: Sequence[Prediction] = (),
) -> tuple[ScalingResult, ...]:
    """One row for each scaling expectation, group of other axes, and count above the baseline's.

    ``predictions`` judge throughputs where no row of the expectation's table fits.
    """
    by_pair = {(each.point_id, each.baseline_id): each for each in predictions}
    rows = list[ScalingResult]()
    for benchmark in suite.benchmarks:
        for expectation in benchmark.expectations:
            if isinstance(expectation, Scaling):
                table = tables[expectation.table] if expectation.table is not None else None
                rows += _expectation_rows(_Context(benchmark, expectation, measurements, table, machine, by_pair))
    return tuple(rows)


def _expectation_rows(context: _Context) -> Iterator[ScalingResult]:
    """Rows of the counts above the baseline's; the suite decides which that is, not what ``-k`` kept."""
    along = context.expectation.along
    groups = grouped(
        (repr(sorted(context.group(entry).items())), entry)
        for entry in context.measurements.entries
        if entry.benchmark == context.benchmark.name and along in entry.axes
    )
    wanted = baseline_count(context.benchmark, context.expectation)
    for group in groups.values():
        ordered = sorted(group, key=lambda entry: _count(entry.axes[along]))
        of_count = (entry for entry in ordered if entry.axes[along] == wanted)
        baseline = next(of_count, _filtered(ordered[0], context, wanted))
        yield from (_row(context, entry, baseline) for entry in ordered if _count(entry.axes[along]) > wanted)


def _count(value: AxisValue) -> int:
    assert isinstance(value, int), "the suite file's check lets scaling run along parallel axes only"
    return value


def _filtered(sibling: Point | Skip, context: _Context, count: int) -> Skip:
    """Stand-in for a baseline that is not in the plan."""
    along = context.expectation.along
    present = _count(sibling.axes[along])
    grown = {name: _count(sibling.axes[name]) * count // present for name in context.apart & sibling.axes.keys()}
    axes: dict[str, AxisValue] = {**sibling.axes, **grown, along: count}
    name, num_gpus = point_id(sibling.benchmark, axes), sibling.num_gpus * count // present
    reason = f"{name} was left out by -k"
    return Skip(id=name, benchmark=sibling.benchmark, axes=axes, num_gpus=num_gpus, reason=reason, kind="filter")


def _gpus(context: _Context, entry: Point | Skip) -> int:
    """Count for a table: the axis's value, but GPUs along nodes."""
    along = context.expectation.along
    return entry.num_gpus if along == NODES else _count(entry.axes[along])


def _row(context: _Context, entry: Point | Skip, baseline: Point | Skip) -> ScalingResult:
    metric, along, measurements = context.expectation.metric, context.expectation.along, context.measurements
    linear, table = _gpus(context, entry) / _gpus(context, baseline), context.table
    prediction = context.predictions.get((entry.id, baseline.id))
    row = _table_row(context, entry, baseline)
    # By the closest row of the table, else by a prediction.
    expected = None if row is None or table is None else expected_by_row(row, table.name)
    if expected is None and prediction is not None and METRICS[metric].of_all_gpus:
        expected = prediction.expected
    interval: Interval | None = None
    missing = absence(entry, metric, measurements) or absence(baseline, metric, measurements, of="baseline: ")
    if isinstance(entry, Point) and isinstance(baseline, Point) and missing is None:
        judged_by = expected or (no_row(table.name, context.machine, entry.settings.num_nodes) if table else NO_TABLE)
        interval, judgement = judged_ratio(measurements, metric, entry, baseline, judged_by, linear, prediction)
    else:
        assert missing is not None, "what was measured is planned"
        judgement = Judgement(*missing)
        is_planned = isinstance(entry, Point) and isinstance(baseline, Point)
        if expected is None and judgement.verdict == "missing" and (is_planned or table is None):
            # An unmeasured metric that nothing here would judge (power on a CPU) is no shortfall.
            judgement = judgement._replace(verdict="no_expectation")
    speedup, low, high = interval or (None, None, None)
    return ScalingResult(
        benchmark=context.benchmark.name,
        metric=metric,
        scaling=context.expectation.scaling,
        along=along,
        group=context.group(entry),
        count=_count(entry.axes[along]),
        baseline_count=_count(baseline.axes[along]),
        point_id=entry.id,
        baseline_id=baseline.id,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        efficiency=speedup / linear if METRICS[metric].of_all_gpus and speedup is not None else None,
        expected=expected,
        **judgement._asdict(),
    )


def judged_ratio(
    measurements: Measurements,
    metric: str,
    point: Point,
    baseline: Point,
    expected: Expected | str,
    linear: float,
    prediction: Prediction | None = None,
) -> tuple[Interval | None, Judgement]:
    """The ratio with its interval, and its verdict; no interval where a value of zero or below has no ratio.

    The reason of a fail names the part of the step that is longer than its ``prediction``.
    """
    traits = METRICS[metric]

    def judge(evidence: RowStatistics) -> Judgement:
        judgement = judge_ratio(evidence, expected, linear, more=traits.higher_is_better)
        if judgement.verdict == "fail" and prediction is not None and traits.of_all_gpus:
            ratio = evidence.interval[0] / prediction.speedup
            part = missing_part(measurements.samples(point), ratio, prediction.communication_fraction)
            judgement = judgement._replace(reason="; ".join(filter(None, (judgement.reason, part))))
        return judgement

    interval, judgement = judged_points(measurements, metric, (point, baseline), "baseline", judge)
    if interval is None and isinstance(expected, str):
        judgement = judgement._replace(verdict="no_expectation")
    return interval, judgement


def missing_part(samples: Mapping[str, Samples], ratio: float, predicted: float | None) -> str | None:
    """The part of a step to which a speedup below its prediction is due, by steps without communication.

    ``ratio``: speedup over its prediction. ``predicted``: fraction of a step that communicates. A named part explains
    half of the time beyond the prediction or more. ``None`` without such steps, and for a speedup not below it.
    """
    names, shortfall = ("exposed_communication_fraction", "straggler_gap_fraction"), 1 - ratio
    if shortfall <= 0 or predicted is None or any(name not in samples for name in names):
        return None
    exposed, gap = (location(samples[name]) for name in names)
    beyond = exposed - predicted * (1 - shortfall)
    communication = f"communication takes {percent(exposed)} of the step, predicted {percent(predicted)}"
    if beyond >= max(shortfall / 2, gap / (1 + gap)):
        return communication
    if gap / (1 + gap) >= shortfall / 2:
        return f"imbalance: the slowest GPU takes {percent(gap)} longer than the others"
    return f"{communication}, and GPUs differ by {percent(gap)}: lower clocks or the host are left"


def scaling_claims(
    suite: Suite,
    measurements: Measurements,
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
    rows: Sequence[ScalingResult],
) -> Iterator[ClaimResult]:
    """Claims of tables about speedups, each with the measured speedup among ``rows``."""
    points = {point.id: point for point in measurements.plan.points}
    for row in rows:
        if row.speedup is None:
            continue
        point, baseline = points[row.point_id], points[row.baseline_id]
        counts = (point.num_gpus, baseline.num_gpus) if row.along == NODES else (row.count, row.baseline_count)
        context = context_of(machine, row.metric, point.settings.to_json(), point.shape)
        for table in (each.table for each in expectations_of(suite, row) if each.table is not None):
            if (claim := ratio_row(tables[table], context, *counts, claims=True)) is not None:
                speedup = Estimate(value=row.speedup, low=None, high=None, unit="x")
                evidence = row_statistics(measurements, row.metric, [point], [baseline])
                yield claim_result(row.benchmark, claim, table, (point.id, baseline.id), speedup, evidence)


def _table_row(context: _Context, entry: Point | Skip, baseline: Point | Skip) -> RatioRow | None:
    if context.table is None:
        return None
    if isinstance(entry, Point):
        settings, shape = entry.settings.to_json(), entry.shape
    else:
        benchmark = context.benchmark
        settings = {**defaults(SETTINGS_OF[benchmark.workload]), **benchmark.settings, **entry.axes}
        planned = ((point.settings, point.shape) for point in context.measurements.plan.points)
        model = settings.get("model")
        shapes = (shape for each, shape in planned if isinstance(each, ModelSettings) and each.model == model)
        shape = next(shapes, None)
    wanted = context_of(context.machine, context.expectation.metric, settings, shape)
    return ratio_row(context.table, wanted, _gpus(context, entry), _gpus(context, baseline))


def expected_by_row(row: RatioRow, table: str) -> Expected:
    """The limits of a row of ``table``."""
    minimum, maximum = row.limits
    return Expected(minimum=minimum, maximum=maximum, source=row.source, table=table, hosts=row.hosts)


def expectations_of(suite: Suite, row: ScalingResult) -> Iterator[Scaling]:
    """Expectations of the row: one metric may have several along an axis, each with its baseline or its table."""
    for benchmark in suite.benchmarks:
        for expectation in benchmark.expectations if benchmark.name == row.benchmark else ():
            if not isinstance(expectation, Scaling):
                continue
            wanted = (expectation.metric, expectation.along, baseline_count(benchmark, expectation))
            if (row.metric, row.along, row.baseline_count) == wanted:
                yield expectation


def baseline_count(benchmark: Benchmark, expectation: Scaling) -> int:
    """The axis's value whose points are the baselines: the suite decides it, not what ``-k`` kept."""
    if expectation.baseline is not None:
        return expectation.baseline
    return min(value for value in benchmark.axes[expectation.along] if isinstance(value, int))
