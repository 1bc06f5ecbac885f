"""Speedup and efficiency against the baseline point of the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pybench.compute.flops import model_class
from pybench.compute.plan import point_id
from pybench.compute.stats import ratio
from pybench.judge.absence import absence
from pybench.judge.measurements import Measurements
from pybench.judge.validity import starvation
from pybench.judge.verdict import judge_ratio, limits
from pybench.model.decoder_shape import DecoderShape
from pybench.model.expected import ANY, ANY_GPU, ExpectedRow, ExpectedTable
from pybench.model.machine import Machine
from pybench.model.results import Expected, ScalingResult
from pybench.model.suite import AxisValue, Benchmark, Expectation, Plan, Point, Skip, Suite
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import ModelSettings

_KEYS = ("fabric", "backend", "model_class")
_KINDS = ("seed", "published", "measured")


@dataclass(frozen=True, kw_only=True)
class _Context:
    """Everything a row is made from."""

    benchmark: Benchmark
    expectation: Expectation
    measurements: Measurements
    table: ExpectedTable | None
    machine: Machine

    @property
    def along(self) -> str:
        return self.expectation.along or ""


def scaling_results(
    suite: Suite,
    measurements: Measurements,
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
) -> tuple[ScalingResult, ...]:
    """One row for each scaling expectation, group of other axes, and count above the baseline's."""
    return tuple(
        row
        for benchmark in suite.benchmarks
        for expectation in benchmark.expectations
        if expectation.along is not None
        for row in _expectation_rows(
            _Context(
                benchmark=benchmark,
                expectation=expectation,
                measurements=measurements,
                table=tables[expectation.table] if expectation.table is not None else None,
                machine=machine,
            )
        )
    )


def lookup(table: ExpectedTable, wanted: Mapping[str, str], count: int, baseline_count: int) -> ExpectedRow | None:
    """Row for a machine, or ``None``.

    Among the rows whose keys all match, the closest machine wins (its kind, then ``gpu``, then ``any``), then the most
    keys spelled out, then measured before published before seed. A seed is what a guide promises for no machine in
    particular, and one table for all machines fails healthy ones: it counts only where the table has no other figure,
    at any count, for this context.
    """
    own = [row for row in table.rows if row.unit is None and fits(row, wanted)]
    if any(row.kind != "seed" for row in own):
        own = [row for row in own if row.kind != "seed"]
    fitting = [row for row in own if (row.count, row.baseline_count) == (count, baseline_count)]
    return max(fitting, key=closeness, default=None)


def fits(row: ExpectedRow, wanted: Mapping[str, str]) -> bool:
    """Whether every key of the row matches."""
    machines = {ANY, wanted["machine"]} | (set() if wanted["machine"] == "cpu" else {ANY_GPU})
    return (
        (row.workload, row.metric) == (wanted["workload"], wanted["metric"])
        and row.machine in machines
        and all(getattr(row, key) in {ANY, wanted[key]} for key in _KEYS)
    )


def closeness(row: ExpectedRow) -> tuple[int, int, int]:
    """Sorts the rows that fit; the greatest is the one to use."""
    machine = 0 if row.machine == ANY else 1 if row.machine == ANY_GPU else 2
    return machine, sum(getattr(row, key) != ANY for key in _KEYS), _KINDS.index(row.kind)


def _expectation_rows(context: _Context) -> list[ScalingResult]:
    own = [
        entry
        for entry in context.measurements.entries
        if entry.benchmark == context.benchmark.name and context.along in entry.axes
    ]
    groups: dict[str, list[Point | Skip]] = {}
    for entry in own:
        groups.setdefault(repr(sorted(_group(entry, context.along).items())), []).append(entry)
    return [row for group in groups.values() for row in _group_rows(context, group)]


def _group(entry: Point | Skip, along: str) -> dict[str, AxisValue]:
    return {name: value for name, value in entry.axes.items() if name != along}


def _group_rows(context: _Context, group: Sequence[Point | Skip]) -> list[ScalingResult]:
    """Rows of the counts above the baseline's; the suite, not what ``-k`` kept of it, says which that is."""
    along = context.along
    counts = [_count(value) for value in context.benchmark.axes[along]]
    wanted = min(counts) if context.expectation.baseline is None else context.expectation.baseline
    ordered = sorted(group, key=lambda entry: _count(entry.axes[along]))
    baseline = next((entry for entry in ordered if entry.axes[along] == wanted), _filtered(ordered[0], along, wanted))
    return [_row(context, entry, baseline) for entry in ordered if _count(entry.axes[along]) > wanted]


def _count(value: AxisValue) -> int:
    assert isinstance(value, int), "the suite file's check lets scaling run along parallel axes only"
    return value


def _filtered(sibling: Point | Skip, along: str, count: int) -> Skip:
    """Stand-in for a baseline that is not in the plan."""
    axes = {**sibling.axes, along: count}
    return Skip(
        id=point_id(sibling.benchmark, axes),
        benchmark=sibling.benchmark,
        axes=axes,
        num_gpus=sibling.num_gpus * count // _count(sibling.axes[along]),
        reason=f"{point_id(sibling.benchmark, axes)} was left out by -k",
    )


def _row(context: _Context, entry: Point | Skip, baseline: Point | Skip) -> ScalingResult:
    metric = context.expectation.metric
    traits = METRICS[metric]
    count, baseline_count = _count(entry.axes[context.along]), _count(baseline.axes[context.along])
    expected = _expected(context, entry, count, baseline_count)
    speedup = low = high = None
    flags: tuple[str, ...] = ()
    measurements = context.measurements
    missing = absence(entry, metric, measurements) or absence(baseline, metric, measurements, of="baseline: ")
    if missing is None:
        speedup, low, high = ratio(measurements.samples(entry)[metric], measurements.samples(baseline)[metric])
        linear = count / baseline_count
        verdict, reason, flags = judge_ratio(speedup, low, high, expected, linear, more=traits.higher_is_better)
        hunger = starvation(baseline, measurements.samples(baseline)) if isinstance(baseline, Point) else None
        if hunger is not None:
            verdict, reason, flags = "inconclusive", f"no valid baseline: {hunger}", ("starved_baseline",)
    else:
        verdict, reason = missing
        planned = isinstance(entry, Point) and isinstance(baseline, Point)
        if expected is None and verdict == "missing" and (planned or context.table is None):
            # An unmeasured metric that nothing here would judge (power on a CPU) is no shortfall.
            verdict = "no_expectation"
    throughput = traits.higher_is_better and speedup is not None
    return ScalingResult(
        benchmark=context.benchmark.name,
        metric=metric,
        scaling=context.expectation.scaling or "strong",
        along=context.along,
        group=_group(entry, context.along),
        count=count,
        baseline_count=baseline_count,
        point_id=entry.id,
        baseline_id=baseline.id,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        efficiency=speedup * baseline_count / count if throughput and speedup is not None else None,
        expected=expected,
        verdict=verdict,
        reason=reason,
        flags=flags,
    )


def _expected(context: _Context, entry: Point | Skip, count: int, baseline_count: int) -> Expected | None:
    if context.table is None:
        return None
    settings = {**context.benchmark.settings, **entry.axes}
    shape = entry.shape if isinstance(entry, Point) else _shape(context.measurements.plan, settings.get("model"))
    wanted = {
        "machine": context.machine.kind,
        "fabric": context.machine.fabric,
        "backend": str(settings.get("backend")),
        "model_class": model_class(shape) if shape else "",
        "workload": context.benchmark.workload,
        "metric": context.expectation.metric,
    }
    row = lookup(context.table, wanted, count, baseline_count)
    if row is None:
        return None
    minimum, maximum = limits(row)
    return Expected(minimum=minimum, maximum=maximum, source=row.source, table=context.table.name)


def _shape(plan: Plan, model: object) -> DecoderShape | None:
    """Shape of a model that some planned point runs."""
    settings = ((point.settings, point.shape) for point in plan.points)
    return next((shape for own, shape in settings if isinstance(own, ModelSettings) and own.model == model), None)
