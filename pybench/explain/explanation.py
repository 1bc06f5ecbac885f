"""A run's speedups against those that the node's own rates predict, and the parts of each shortfall."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pybench.core.measurements import Measurements
from pybench.core.plan import point_id
from pybench.core.provenance import differences, worker_packages
from pybench.core.scaling import missing_part
from pybench.explain.measured_step import MeasuredStep, groups_of, measured_steps, shared_rates
from pybench.explain.node import MeasuredNode, latest_node_run, measured_node
from pybench.explain.predict import launch_bound, predicted_phases
from pybench.explain.step_time import NodeRates, UnmeasuredError, total
from pybench.explain.values import ExplainedBaseline, ExplainedPoint, Explanation
from pybench.files.run.folder import RunFolder
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest
from pybench.model.workloads.settings import NodeSettings

_OTHER_MACHINE = "the two runs are from machines, drivers or kernels that differ: predictions may not hold"
_NO_SINGLE_GPUS = "a results.json has the figures of the node's slowest GPU only; they are used for every GPU"
_OTHER_GPUS = "the node's run did not measure every GPU; the rates of its slowest are used for every GPU"
_MOST_VARIABLES = 2
# Fractions of the baseline's power and of a step from which GPUs are reported to wait. Four H100s drew up to 11 % less
# power in steps that were predicted within 3 %.
_LESS_POWER = 0.2
_UNEXPLAINED = 0.1


def explanation_of(run: RunFolder, manifest: Manifest, node_path: Path | None) -> Explanation:
    """A run explained by a node's run, given by folder or results; default: the latest in the run's folder.

    Raises ``UsageError`` where the run measured a node itself, or has nothing to explain.
    """
    points = manifest.plan.points
    if points and all(isinstance(point.settings, NodeSettings) for point in points):
        command = f"pybench explain OTHER --node {shlex.quote(str(run.path))}"
        raise UsageError(f"{run.path}: a node check itself; give a run with speedups: {command}")
    node = measured_node(node_path or latest_node_run(run.path, manifest.fingerprint), manifest.machine.kind)
    return explain(manifest, Measurements.of(manifest.plan, run.journal.records()), node)


def explain(manifest: Manifest, measurements: Measurements, node: MeasuredNode) -> Explanation:
    """The baseline of each group of points of a model, and the other points against it.

    Raises ``UsageError`` when the run measured no model, or the node's run lacks the rates that every prediction needs.
    """
    groups = groups_of(measured_steps(measurements))
    if not groups:
        raise UsageError(f"{manifest.run_id}: it measured no model; nothing to explain")
    notes = list(_cautions(manifest, measurements, node))
    baselines: list[ExplainedBaseline] = []
    points: list[ExplainedPoint] = []
    for group in groups:
        rates = shared_rates(node, group)
        if node.has_each_gpu and not rates.gpus:
            notes.append(f"{point_id(group[0].point.benchmark, group[0].group)}: {_OTHER_GPUS}")
        baselines.append(_baseline(rates, group[0]))
        points += [_explained(rates, group[0], other, measurements) for other in group[1:]]
    return Explanation(
        run_id=manifest.run_id,
        node_run_id=node.run_id,
        points=tuple(points),
        notes=tuple(dict.fromkeys(notes)),
        baselines=tuple(baselines),
    )


def _cautions(manifest: Manifest, measurements: Measurements, node: MeasuredNode) -> Iterator[str]:
    if manifest.fingerprint != node.fingerprint:
        yield _OTHER_MACHINE
    run_packages = worker_packages(measurements.records)
    both = sorted(node.packages.keys() & run_packages.keys())
    changes = differences(*({name: packages[name] for name in both} for packages in (node.packages, run_packages)))
    variables = differences(node.environment, manifest.environment)
    if len(variables) > _MOST_VARIABLES:  # environments that differ as a whole
        variables = [f"{variables[0]} and {len(variables) - 1} more variables"]
    if changes := [*changes, *variables]:
        yield f"workers of the two runs had other software ({'; '.join(changes)}): predictions may not hold"
    if not node.has_each_gpu:
        yield _NO_SINGLE_GPUS
    yield from node.doubts


def _baseline(rates: NodeRates, base: MeasuredStep) -> ExplainedBaseline:
    measured = ExplainedBaseline(point_id=base.point.id, num_gpus=base.point.num_gpus, measured_s=base.step_s)
    try:
        predicted = base.predicted(rates)
        bound = launch_bound(base.rates(rates), base.point, base.samples)
    except UnmeasuredError as error:
        return replace(measured, reason=str(error))
    return replace(measured, parts=total(predicted).by_name, bound=bound)


def _explained(rates: NodeRates, base: MeasuredStep, other: MeasuredStep, run: Measurements) -> ExplainedPoint:
    measured = ExplainedPoint(
        point_id=other.point.id,
        baseline_id=base.point.id,
        num_gpus=other.point.num_gpus,
        measured_s=other.step_s,
        measured_speedup=other.rate / base.rate,
        power_limited=other.power_limited,
        baseline_power_limited=base.power_limited,
        clock_fraction=other.clock_hz / base.clock_hz - 1 if other.clock_hz and base.clock_hz else None,
        power_w=other.power_w,
        baseline_power_w=base.power_w,
    )
    try:
        baseline, predicted = other.against(base, rates)
        even = predicted_phases(base.rates(rates.over(other.settings.num_nodes)), other.point, other.samples)
    except UnmeasuredError as error:
        return replace(measured, reason=str(error))
    share = other.samples / base.samples * base.point.num_gpus / other.point.num_gpus
    predicted_s = baseline.calibrated_s(predicted)
    explained = replace(
        measured,
        predicted_s=predicted_s,
        predicted_speedup=other.samples / predicted_s / base.rate,
        shortfall_s=other.step_s - share * base.step_s,
        parts=baseline.shortfall(other.step_s, predicted=predicted, even=even, share=share),
    )
    if (explained.parts or {}).get("unexplained", 0.0) < _UNEXPLAINED * explained.measured_s:
        return explained
    samples, communication = run.samples(other.point), baseline.communication_fraction(predicted)
    if part := missing_part(samples, predicted_s / other.step_s, communication):
        return replace(explained, wait=part)
    if (less := explained.power_fraction) is None or less > -_LESS_POWER:
        return explained
    powers = f"its GPUs draw {other.power_w:.0f} W each, the baseline's {base.power_w:.0f} W"
    wait = "they wait, for their CPUs or for each other; a larger batch gives each launch more work"
    return replace(explained, wait=f"{powers}: {wait}")
