"""From a manifest and its records to results: the one way from measurements to what every report shows."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.judge.absolute import absolute_checks
from pybench.judge.loss_curve import loss_checks
from pybench.judge.measurements import Measurements
from pybench.judge.node.checks import node_checks
from pybench.judge.ordering import order_results
from pybench.judge.scaling import scaling_results
from pybench.judge.summary import summarize
from pybench.judge.verdict import overall
from pybench.model.container import ContainerSetup
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.results import Containment, Provenance, Results


def assemble(manifest: Manifest, measurements: Measurements) -> Results:
    """Judge everything that was measured."""
    suite = manifest.suite
    points = summarize(measurements)
    scaling = scaling_results(suite, measurements, manifest.tables, manifest.machine)
    checks = absolute_checks(suite, measurements.plan, points, manifest.tables, manifest.machine)
    orders = order_results(suite, measurements)
    node = node_checks(measurements, manifest.machine)
    declared = any(benchmark.expectations for benchmark in suite.benchmarks)
    losses = loss_checks(measurements)
    verdict, reason = overall(points, scaling, checks, orders, node, losses, declared=declared)
    if verdict == "pass" and manifest.container and not manifest.container.pinned:
        verdict, reason = "inconclusive", "every expectation passes, but in an image that isn't pinned"
    return Results(
        run_id=manifest.run_id,
        suite=suite.name,
        description=suite.description,
        profile=suite.profile,
        machine=manifest.machine.kind,
        fingerprint=manifest.fingerprint,
        provenance=_provenance(manifest, measurements.records),
        verdict=verdict,
        reason=reason,
        points=points,
        scaling=scaling,
        checks=(*checks, *losses),
        orders=orders,
        node=node,
    )


def _provenance(manifest: Manifest, records: Sequence[Record]) -> Provenance:
    machine = manifest.machine
    headers = [rank.header for record in records for rank in record.ranks]
    compatibility = {header.forward_compatible for header in headers} - {None}
    packages = {name: version for header in headers for name, version in header.packages.items()}
    return Provenance(
        created_utc=manifest.created_utc,
        pybench_version=manifest.pybench_version,
        engine=manifest.engine,
        containment=_containment(manifest.container) if manifest.container else None,
        gpu_names=machine.gpu_names,
        driver=machine.driver,
        worker_driver=next((header.driver for header in headers if header.driver), None),
        forward_compatible=any(compatibility) if compatibility else None,
        cpu_model=machine.cpu_model,
        kernel=machine.kernel,
        packages=({"python": headers[0].python} if headers else {}) | packages,
    )


def _containment(setup: ContainerSetup) -> Containment:
    return Containment(
        engine=setup.engine,
        engine_version=setup.engine_version,
        images=tuple(f"{image.name} {image.reference}" for image in setup.images),
        pinned=setup.pinned,
        relaxations=tuple(relaxation.name for relaxation in setup.relaxations),
    )
