"""From a manifest and its records to results: the one way from measurements to what every report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pybench.core.absolute import absolute_checks, absolute_claims
from pybench.core.comparisons import comparison_claims, comparison_results
from pybench.core.counts import count
from pybench.core.family import corrected
from pybench.core.fingerprint import fingerprint, run_fields
from pybench.core.jobs import job_results
from pybench.core.loss_curve import loss_checks
from pybench.core.measurements import Measurements
from pybench.core.node.checks import node_checks
from pybench.core.plan.expand import is_required, left_out_list, parse_required, skipped
from pybench.core.provenance import provenance, software_of
from pybench.core.scaling import scaling_claims, scaling_results
from pybench.core.schedule.attempts import pending
from pybench.core.summary import summarize
from pybench.core.verdict import overall
from pybench.model.manifest import Manifest
from pybench.model.results import CheckResult, ComparisonResult, JudgedRow, NodeCheck, Results, ScalingResult
from pybench.model.suite import Point, Skip


def assemble(manifest: Manifest, measurements: Measurements) -> Results:
    """Judge everything that was measured."""
    measurements = _without_unfit(manifest, measurements)
    suite, plan = manifest.suite, measurements.plan
    tables, machine = manifest.tables, manifest.machine
    points = summarize(measurements, manifest.options.time_limit_s)
    scaling, checks, comparisons, node = _judged(
        scaling_results(suite, measurements, tables, machine),
        absolute_checks(suite, measurements, points, tables, machine),
        comparison_results(suite, measurements),
        node_checks(measurements, machine),
    )
    measured = {point.id for point in points if point.status == "ok"}
    counts = count(suite, plan, (*scaling, *checks, *comparisons), node, measured)
    losses = loss_checks(measurements)
    left_out = left_out_list(plan)
    rows: tuple[JudgedRow, ...] = (*scaling, *checks, *comparisons, *node)
    # What a time limit left out is owed no more.
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
    )
    if verdict == "pass" and manifest.container and not manifest.container.pinned:
        verdict, reason = "inconclusive", "every expectation passes, but in an image that isn't pinned"
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
            *absolute_claims(suite, measurements, points, tables, machine),
            *comparison_claims(suite, measurements),
        ),
        jobs=job_results(measurements),
        counts=counts,
        left_out=left_out,
        machine_fields=run_fields(manifest.machine, manifest.machines),
        software_fields=software,
        options=manifest.options.words(),
        part_of=manifest.part_of,
    )


def _without_unfit(manifest: Manifest, measurements: Measurements) -> Measurements:
    """Leave out the points that ran out of memory; those that are required lack it, and so are missing.

    A point is an error instead where another process was on its GPUs.
    """
    plan, required = manifest.plan, parse_required(manifest.options.require)
    must = {benchmark.name for benchmark in manifest.suite.benchmarks if benchmark.required}
    unfit = {point.id: skip for point in plan.points if (skip := _unfit(point, measurements)) is not None}
    missing = {point.id for point in plan.points if point.benchmark in must or is_required(point, required)}
    plan = replace(
        plan,
        points=tuple(point for point in plan.points if point.id not in unfit),
        skips=(*plan.skips, *(skip for name, skip in unfit.items() if name in missing)),
        left_out=(*plan.left_out, *(skip for name, skip in unfit.items() if name not in missing)),
    )
    return replace(measurements, plan=plan)


def _unfit(point: Point, measurements: Measurements) -> Skip | None:
    records = measurements.attempts(point.id)
    failures = [record.failure for record in records]
    if not failures or any(failure is None or failure.cause != "out_of_memory" for failure in failures):
        return None
    if failures[0] is None or any(record.health is not None and record.health.others for record in records):
        return None
    return skipped(point, f"does not fit: {failures[0].message}", "points that do not fit the memory")


def _judged(
    scaling: Sequence[ScalingResult],
    checks: Sequence[CheckResult],
    comparisons: Sequence[ComparisonResult],
    node: Sequence[NodeCheck],
) -> tuple[tuple[ScalingResult, ...], tuple[CheckResult, ...], tuple[ComparisonResult, ...], tuple[NodeCheck, ...]]:
    """The rows, of which those stay fails that are when all are judged together."""
    rows: tuple[JudgedRow, ...] = (*scaling, *checks, *comparisons, *node)
    return corrected(scaling, rows), corrected(checks, rows), corrected(comparisons, rows), corrected(node, rows)
