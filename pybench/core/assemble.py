"""From a manifest and its records to results: the one way from measurements to what every report shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from pybench.core.absolute import absolute_checks, absolute_claims
from pybench.core.comparisons import comparison_claims, comparison_results
from pybench.core.counts import count, overall
from pybench.core.loss_curve import loss_checks
from pybench.core.measurements import Measurements, grouped
from pybench.core.node_checks import node_checks
from pybench.core.plan import left_out_list, parse_required, skipped, without
from pybench.core.provenance import fingerprint, provenance, run_fields, software_of
from pybench.core.scaling import scaling_claims, scaling_results
from pybench.core.schedule import pending
from pybench.core.statistics.false_discovery import sure
from pybench.core.statistics.interval import NoRatioError
from pybench.core.summary import summarize
from pybench.core.train_metrics import job_steps
from pybench.core.verdict import row_statistics
from pybench.model.manifest import Manifest
from pybench.model.results import Estimate, JobResult, JudgedRow, Results
from pybench.model.suite import Point, Skip
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import GPU_AXES, NODES


def assemble(manifest: Manifest, measurements: Measurements) -> Results:
    """Judge everything that was measured."""
    measurements = _without_unfit(manifest, measurements)
    suite, plan = manifest.suite, measurements.plan
    tables, machine = manifest.tables, manifest.machine
    rates = {benchmark.name for benchmark in suite.benchmarks if benchmark.gives_rates}
    summaries = summarize(measurements, manifest.options.time_limit_s)
    points = tuple(sorted(summaries, key=lambda point: point.benchmark in rates))  # what serves predictions comes last
    predictions = () if parse_required(manifest.options.require).table else manifest.predictions
    scaling = scaling_results(suite, measurements, tables, machine, predictions)
    checks = absolute_checks(suite, measurements, points, tables, machine)
    comparisons, node = comparison_results(suite, measurements), node_checks(measurements, machine, rates)
    together: tuple[JudgedRow, ...] = (*scaling, *checks, *comparisons, *node)
    scaling, checks = corrected(scaling, together), corrected(checks, together)
    comparisons, node = corrected(comparisons, together), corrected(node, together)
    measured = {point.id for point in points if point.status == "ok"}
    counts = count(suite, plan, (*scaling, *checks, *comparisons), node, measured)
    losses = loss_checks(measurements)
    left_out = left_out_list(plan)
    rows: tuple[JudgedRow, ...] = (*scaling, *checks, *comparisons, *node)
    # Attempts that a time limit cut are no longer owed.
    owed = pending(plan.points, measurements.records) if manifest.options.time_limit_s is None else ()
    verdict, reason = overall(
        points,
        rows,
        losses,
        counts=counts,
        machine=machine.kind,
        left_out=left_out,
        skips=plan.skips,
        num_owed=len(owed),
        gpus=machine.gpus,
        is_pinned=manifest.container is None or manifest.container.pinned,
    )
    software = software_of(manifest, measurements.records)
    return Results(
        run_id=manifest.run_id,
        suite=suite.name,
        description=suite.description,
        profile=suite.profile,
        machine=manifest.machine.kind,
        fingerprint=manifest.fingerprint,
        software_key=fingerprint(software),
        provenance=provenance(manifest, measurements.records),
        verdict=verdict,
        reason=reason,
        points=points,
        scaling=scaling,
        checks=(*checks, *losses),
        comparisons=comparisons,
        node=node,
        claims=(
            *scaling_claims(suite, measurements, tables, machine, scaling),
            *absolute_claims(measurements, tables, machine, checks),
            *comparison_claims(suite, measurements),
        ),
        jobs=tuple(job_results(measurements)),
        counts=counts,
        left_out=left_out,
        machine_fields=run_fields(manifest.machine, manifest.machines),
        software_fields=software,
        options=manifest.options.words(),
        part_of=manifest.part_of,
        num_owed=len(owed),
    )


def _without_unfit(manifest: Manifest, measurements: Measurements) -> Measurements:
    """Leave out the points that ran out of memory; those that are required lack it, and so are missing.

    A point is an error instead where another process was on its GPUs.
    """
    plan, required = manifest.plan, parse_required(manifest.options.require)
    must = {benchmark.name for benchmark in manifest.suite.benchmarks if benchmark.required}
    unfit = {point.id: skip for point in plan.points if (skip := _unfit(point, measurements)) is not None}
    return replace(measurements, plan=without(plan, unfit, required, must))


def _unfit(point: Point, measurements: Measurements) -> Skip | None:
    records = measurements.attempts(point.id)
    failures = [each.failure for each in records if each.failure and each.failure.cause == "out_of_memory"]
    shared = any(record.health is not None and record.health.others for record in records)
    if shared or not failures or len(failures) < len(records):
        return None
    reason = f"does not fit: {failures[0].message}"
    return skipped(point, "memory", reason, "points that do not fit the memory")


_Row = TypeVar("_Row", bound=JudgedRow)


def corrected(rows: Sequence[_Row], all_rows: Sequence[JudgedRow]) -> tuple[_Row, ...]:
    """``rows`` whose fails are inconclusive where they are not significant among ``all_rows``, at their own levels."""
    decisions = [row.decision for row in all_rows if row.decision is not None]
    sure_ids = sure({id(decision): decision.p_fail / decision.fail_level for decision in decisions})
    kept: list[_Row] = []
    for row in rows:
        if row.verdict == "fail" and row.decision is not None and id(row.decision) not in sure_ids:
            reason = f"{row.reason}; a fail by itself, but not yet sure among {len(decisions)} judged rows"
            undecided = replace(row.decision, attempts_to_decide=row.decision.num_attempts + 1)
            kept.append(replace(row, verdict="inconclusive", reason=reason, decision=undecided))
        else:
            kept.append(row)
    return tuple(kept)


_TIME, _ENERGY = "job_h", "job_energy_j"


def job_results(measurements: Measurements) -> Iterator[JobResult]:
    """One row for each measured point that has a job, grouped by points that differ in their GPUs alone."""

    def elsewhere(point: Point) -> str:
        values = sorted((name, value) for name, value in point.axes.items() if name not in {*GPU_AXES, NODES})
        return repr((point.benchmark, values))

    for group in grouped((elsewhere(point), point) for point, _ in measurements.measured(_TIME)).values():
        first, *_ = ordered = sorted(group, key=lambda point: point.num_gpus)
        for point in ordered:
            job, baseline = point.job, None if point is first else first
            assert job is not None, "only points with a job have its length"
            yield JobResult(
                benchmark=point.benchmark,
                point_id=point.id,
                baseline_id=None if baseline is None else baseline.id,
                num_gpus=point.num_gpus,
                samples=job.samples,
                epochs=job.epochs,
                steps=job_steps(job, measurements.good(point.id)[0].ranks[0].steps[0].work.samples),
                time_h=_estimate(measurements, _TIME, point),
                energy_j=_estimate(measurements, _ENERGY, point) if _ENERGY in measurements.samples(point) else None,
                time_saved_fraction=_saved(measurements, _TIME, point, baseline),
                energy_saved_fraction=_saved(measurements, _ENERGY, point, baseline),
            )


def _estimate(measurements: Measurements, metric: str, point: Point) -> Estimate:
    value, low, high = row_statistics(measurements, metric, [point]).interval
    return Estimate(value=value, low=low, high=high, unit=METRICS[metric].unit)


def _saved(measurements: Measurements, metric: str, point: Point, baseline: Point | None) -> Estimate | None:
    """1 less the ratio to the baseline; the ends of the interval swap."""
    if baseline is None or not all(metric in measurements.samples(each) for each in (point, baseline)):
        return None
    try:
        value, low, high = row_statistics(measurements, metric, [point], [baseline]).interval
    except NoRatioError:
        return None
    ends = (None, None) if low is None or high is None else (1 - high, 1 - low)
    return Estimate(value=1 - value, low=ends[0], high=ends[1], unit="")
