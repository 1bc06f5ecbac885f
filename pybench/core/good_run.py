"""Expected rows from one good run; a table's come from :mod:`pybench.core.population`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pybench.core.flops import model_class
from pybench.core.lookup import SPARING
from pybench.core.measurements import Measurements, grouped
from pybench.core.scaling import expectations_of
from pybench.core.statistics.distributions import quantile
from pybench.core.statistics.interval import (
    TAIL,
    NoRatioError,
    Samples,
    as_fraction,
    location,
    logs,
    prediction_reach,
    quotient,
)
from pybench.core.verdict import sensor_sd
from pybench.model.backend import BACKENDS
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest
from pybench.model.results import Results, ScalingResult
from pybench.model.suite import ExpectedRow, FigureRow, Point, RatioRow, TableFigure
from pybench.model.text import counted, plural
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import NODES, NodeSettings

# A/A runs of one machine on another day differ by more than its attempts of one hour show.
MIN_TOLERANCE = 0.02
_MIN_ATTEMPTS = 2
GOOD = frozenset(("pass", "no_expectation"))
"""Verdicts of runs that a table may be written from."""
# Settings that a row names in keys other than `where`, and those that change no figure.
_APART = {"workload", "backend", "seed", "gpus", NODES}


@dataclass(frozen=True, kw_only=True)
class GoodRun:
    """A run that a table may be written from."""

    manifest: Manifest
    measurements: Measurements
    results: Results


def rows_of_run(run: GoodRun, only: str | None = None) -> tuple[ExpectedRow, ...]:
    """A row for each figure that the suite compares with a table, or with the table ``only``.

    The tolerance is the 95 % prediction interval of another run with the same number of attempts: t s sqrt(2/n) of
    logarithms, for a ratio both in quadrature. It is at least 2 %, and wider with two speeds or correlated attempts.
    For joules and watts it includes the sensors' gains on other boards. Rows with equal keys name the settings in
    which their points differ.

    Raises ``UsageError`` for a run with failures, for a tolerance that halves or doubles the figure, for a figure of
    zero or less, and for two points of a row with equal settings.
    """
    manifest, measurements = run.manifest, run.measurements
    _refuse(manifest, run.results)
    points = {point.id: point for point in manifest.plan.points}
    figures = [
        (point, _absolute_row(run, point, expectation.metric))
        for benchmark in manifest.suite.benchmarks
        for expectation in benchmark.expectations
        if isinstance(expectation, TableFigure) and only in {None, expectation.table}
        for point in manifest.plan.points
        if point.benchmark == benchmark.name
        and expectation.gpus in {None, point.num_gpus}
        and expectation.metric in measurements.samples(point)
    ]
    ratios = [
        (points[row.point_id], _ratio_row(run, row))
        for row in run.results.scaling
        if row.speedup is not None
        and (only is None or only in {expectation.table for expectation in expectations_of(manifest.suite, row)})
    ]
    rows: dict[str, tuple[Point, ExpectedRow]] = {}
    for point, row in _named([*figures, *ratios]):
        other, _ = rows.setdefault(row.key, (point, row))  # two tables of a suite may judge one point
        if other is not point:
            raise UsageError(
                f"{manifest.run_id}: {other.id} and {point.id} would have one row, since their settings are equal; "
                "leave one out with -k and run again, or give each its own table and choose one with --table"
            )
    if not rows:
        how = f"by table {only!r}" if only else "by a table"
        raise UsageError(f"{manifest.run_id}: its suite judges nothing {how}; add an expect with a table")
    return tuple(row for _, row in rows.values())


def _refuse(manifest: Manifest, results: Results) -> None:
    """Refuse runs that failed or can't be repeated: the table judges later machines.

    A run cut by -k, by --max-gpus or by the machine gives rows of its measured points.
    """
    run, container = manifest.run_id, manifest.container
    few = [point.id for point in results.points if 0 < point.attempts - point.failed_attempts < _MIN_ATTEMPTS]
    broken = [point.id for point in results.points if point.failed_attempts]
    if results.verdict not in GOOD:
        raise UsageError(f"{run}: its verdict is {results.verdict}, {results.reason}; a table needs a good run")
    if len(set(gpus := manifest.machine.gpu_names)) > 1:
        remedy = "a row is of one kind; list GPUs of one in CUDA_VISIBLE_DEVICES and run it again"
        raise UsageError(f"{run}: {counted(gpus)} are several kinds of GPU, and {remedy}")
    if container is not None and not container.pinned:
        raise UsageError(f"{run}: an image that is not pinned can't be run again; use one of the lock")
    if broken:
        raise UsageError(f"{run}: attempts of {broken[0]} failed; run it again")
    if few:
        raise UsageError(f"{run}: {few[0]} has one attempt, which shows no spread; set attempts = 2 or more")


def _named(rows: Sequence[tuple[Point, ExpectedRow]]) -> Iterator[tuple[Point, ExpectedRow]]:
    """The rows; rows with equal keys name the settings in which their points differ."""
    groups = grouped((row.key, point.settings.to_json()) for point, row in rows)
    for point, row in rows:
        values = point.settings.to_json()
        differing = [name for name in values if any(other[name] != values[name] for other in groups[row.key])]
        names = [name for name in differing if name not in _APART and isinstance(values[name], str | int | float)]
        yield point, replace(row, where={**row.where, **{name: values[name] for name in names}})


def _absolute_row(run: GoodRun, point: Point, metric: str) -> FigureRow:
    samples = run.measurements.samples(point)[metric]
    settings = point.settings.to_json()
    where = {name: value for name, value in settings.items() if name not in _APART and value is not None}
    return FigureRow(
        **_keys(run.manifest, point, samples),
        metric=metric,
        unit=METRICS[metric].unit,
        count=point.num_gpus,
        where=where if isinstance(point.settings, NodeSettings) else {k: where[k] for k in SPARING if where.get(k)},
        value=location(samples),
        tolerance=_tolerance(run, metric, point),
    )


def _ratio_row(run: GoodRun, row: ScalingResult) -> RatioRow:
    points = {point.id: point for point in run.manifest.plan.points}
    point, baseline = points[row.point_id], points[row.baseline_id]
    samples, base = (run.measurements.samples(p)[row.metric] for p in (point, baseline))
    return RatioRow(
        **_keys(run.manifest, point, samples),
        metric=row.metric,
        count=point.num_gpus if row.along == NODES else row.count,
        baseline_count=baseline.num_gpus if row.along == NODES else row.baseline_count,
        value=quotient([samples], [base])[0],
        tolerance=_tolerance(run, row.metric, point, baseline),
    )


def _tolerance(run: GoodRun, metric: str, point: Point, baseline: Point | None = None) -> float:
    """Relative, on the worse side; two machines whose sensors have this sd differ by sqrt(2) times as much."""
    run_id, measurements = run.manifest.run_id, run.measurements
    bases = [] if baseline is None else [baseline]
    sides = [measurements.samples(each)[metric] for each in (point, *bases)]
    try:
        reaches = [prediction_reach(logs(samples), measurements.spread(metric)) for samples in sides]
    except NoRatioError as error:
        raise UsageError(f"{run_id}: {point.id}: {metric} can't have a row: {error}") from error
    sensors = sensor_sd(measurements, metric, [point], bases)
    reach = math.hypot(quantile(TAIL, math.inf) * math.sqrt(2) * sensors, *reaches)
    more = METRICS[metric].higher_is_better
    if reach >= math.log(2):
        what = metric if baseline is None else f"the ratio of {metric}"
        few = plural(min(map(len, sides)), "attempt")
        raise UsageError(
            f"{run_id}: {point.id}: {what} scatters so widely between {few} that another run may have "
            f"{'half' if more else 'twice'} the figure, and its row would decide nothing; measure more attempts"
        )
    return max(MIN_TOLERANCE, -as_fraction(-reach) if more else as_fraction(reach))


def _keys(manifest: Manifest, point: Point, samples: Samples) -> dict[str, Any]:
    """Keys of the figure's row: machine, backend, model and source."""
    machine, nodes = manifest.machine, point.settings.num_nodes
    what = f"{machine.gpu_count} x {machine.gpu_names[0]}" if machine.gpu_names else machine.cpu_model or "CPU"
    driver = f", driver {machine.driver}" if machine.driver else ""
    names = dict.fromkeys(("torch", *BACKENDS[point.settings.backend].distributions))
    packages = "".join(f", {name} {machine.packages[name]}" for name in names if name in machine.packages)
    taken = f"{plural(len(samples), 'attempt')} of {plural(point.effort.steps, 'step')}"
    if nodes > 1 and machine.network is None:
        raise UsageError(f"{manifest.run_id}: {point.id}: what joins its {nodes} nodes is not known; a row needs it")
    return {
        "machine": machine.kind,
        "fabric": machine.fabric if nodes == 1 else machine.network,
        "nodes": nodes,
        "backend": point.settings.backend,
        "model_class": model_class(point.shape) if point.shape else "any",
        "workload": point.settings.workload,
        "nvls": machine.nvls if point.settings.workload == "collective" and nodes == 1 else "any",
        "kind": "measured",
        "source": f"run {manifest.run_id}, {manifest.created_utc}: {what}{driver}{packages}, {taken}",
    }
