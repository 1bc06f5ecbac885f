"""A run's speedups beside those that a node's own figures predict, and what each shortfall is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from pybench.core.fingerprint import differences
from pybench.core.measurements import Measurements
from pybench.core.provenance import worker_packages
from pybench.explain.comm_model.figures import NodeFigures, UnmeasuredError
from pybench.explain.comm_model.step_time import Shortfall, StepTime, attribute, whole
from pybench.explain.extrapolation import extrapolate
from pybench.explain.launches import launch_bound, refuse_launch_bound
from pybench.explain.left_out import left_out
from pybench.explain.measured_node import MeasuredNode
from pybench.explain.measured_step import MeasuredStep, measured_groups, measured_turns
from pybench.explain.node_figures import node_figures
from pybench.explain.notes import stated_once
from pybench.explain.predicted_phases import predicted_phases
from pybench.explain.turn_phases import explained_turn
from pybench.explain.values import (
    CollectiveFit,
    ExplainedBaseline,
    ExplainedPoint,
    ExplainedTurn,
    Explanation,
    Extrapolation,
)
from pybench.explain.waiting import wait
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest

_OTHER_MACHINE = "the two runs are from machines, drivers or kernels that differ: predictions may not hold"
_NO_SINGLE_GPUS = "a results.json has the figures of the node's slowest GPU alone, which stands for each"
_MOST_VARIABLES = 2
_OTHER_GPUS = "the node's run did not measure every GPU; the slowest that it measured stands for each"


def explain(manifest: Manifest, measurements: Measurements, node: MeasuredNode) -> Explanation:
    """The baseline of each group of points of a model, the points above it, predictions for more GPUs, every turn.

    Raises ``UsageError`` when the run measured no model, or the node's run lacks what any prediction needs.
    """
    turns = measured_turns(measurements)
    # Where there are turns, a lone point of a model is there to be held against them.
    groups = [group for group in measured_groups(measurements) if len(group) > 1 or not turns]
    if not turns and not groups:
        raise UsageError(f"{manifest.run_id}: it measured no model; nothing to explain")
    notes = [] if manifest.fingerprint == node.fingerprint else [_OTHER_MACHINE]
    if changes := _other_software(manifest, measurements, node):
        notes.append(f"workers of the two runs had other software ({'; '.join(changes)}): predictions may not hold")
    if not node.has_each_gpu:
        notes.append(_NO_SINGLE_GPUS)
    notes += node.doubts
    baselines: list[ExplainedBaseline] = []
    points: list[ExplainedPoint] = []
    extrapolations: list[Extrapolation] = []
    fits: tuple[CollectiveFit, ...] = ()
    for group in groups:
        figures = node_figures(node, group[0].settings.dtype)
        if node.has_each_gpu and not all(name in figures.gpus for step in group for name in step.gpus):
            notes.append(f"{group[0].label}: {_OTHER_GPUS}")
            figures = replace(figures, gpus={})
        baselines.append(_baseline(figures, group[0]))
        notes += [f"{group[0].label}: {sentence}" for sentence in left_out(group)]
        if len(group) == 1:
            continue
        fits = tuple(_fits(figures))
        explained = [_explained(figures, group[0], other) for other in group[1:]]
        further, gaps = extrapolate(figures, group, explained)
        points += explained
        extrapolations += further
        notes += [f"{group[0].label}: {gap}" for gap in gaps]
    explained_turns = [
        explained_turn(_of_turn(node_figures(node, turn.settings.dtype), turn), turn, measurements) for turn in turns
    ]
    notes += stated_once(gap for turn in explained_turns for gap in _gaps(turn))
    return Explanation(
        run_id=manifest.run_id,
        node_run_id=node.run_id,
        points=tuple(points),
        extrapolations=tuple(extrapolations),
        fits=fits,
        notes=tuple(dict.fromkeys(notes)),
        turns=tuple(explained_turns),
        baselines=tuple(baselines),
    )


def _of_turn(figures: NodeFigures, turn: MeasuredStep) -> NodeFigures:
    """The slowest that the node's run measured stands for GPUs that it did not."""
    return turn.figures(figures) if all(name in figures.gpus for name in turn.gpus) else figures


def _gaps(turn: ExplainedTurn) -> Iterator[tuple[str, str]]:
    """Phases without a floor, and work that no point of the run does alone."""
    for phase in turn.phases:
        if phase.reason is not None:
            yield turn.point_id, f"{phase.name} has no floor: {phase.reason}"
    for phase in turn.working:
        if phase.alone_s is None:
            yield turn.point_id, f"the run has no benchmark of workload {phase.name!r} with the turn's settings"


def _other_software(manifest: Manifest, measurements: Measurements, node: MeasuredNode) -> list[str]:
    """Versions that differ of what both runs' workers had, and variables that differ, the node's first.

    Of several variables the first stands for all: whole environments differ.
    """
    seen, of_node = worker_packages(measurements.records), node.packages
    both = of_node.keys() & seen.keys()
    versions = differences(*({name: found[name] for name in sorted(both)} for found in (of_node, seen)))
    variables = differences(node.environment, manifest.environment)
    if len(variables) > _MOST_VARIABLES:
        variables = [f"{variables[0]} and {len(variables) - 1} more variables"]
    return [*versions, *variables]


def _baseline(figures: NodeFigures, base: MeasuredStep) -> ExplainedBaseline:
    measured = ExplainedBaseline(point_id=base.point.id, num_gpus=base.point.num_gpus, measured_s=base.step_s)
    try:
        predicted = base.predicted(figures)
        bound = launch_bound(base.figures(figures), base.point, base.samples)
    except UnmeasuredError as error:
        return replace(measured, reason=str(error))
    return replace(measured, parts=_by_name(whole(predicted)), bound=bound)


def _explained(figures: NodeFigures, base: MeasuredStep, other: MeasuredStep) -> ExplainedPoint:
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
        joined = figures.over(other.settings.num_nodes)
        refuse_launch_bound(other.figures(joined), other.point, other.samples, base.samples_each)
        baseline = base.as_baseline(base.predicted(figures))
        predicted = other.predicted(figures)
        even = predicted_phases(base.figures(joined), other.point, other.samples)
    except UnmeasuredError as error:
        return replace(measured, reason=str(error))
    share = other.samples / base.samples * base.point.num_gpus / other.point.num_gpus
    parts = attribute(other.step_s, baseline, predicted=predicted, even=even, share=share)
    predicted_s = baseline.calibrated_s(predicted)
    found = replace(
        measured,
        predicted_s=predicted_s,
        predicted_speedup=other.samples / predicted_s / base.rate,
        shortfall_s=other.step_s - share * base.step_s,
        parts=_by_name(parts),
    )
    return replace(found, wait=wait(found))


def _by_name(parts: StepTime | Shortfall) -> dict[str, float]:
    return {name.removesuffix("_s"): value for name, value in asdict(parts).items()}


def _fits(figures: NodeFigures) -> Iterator[CollectiveFit]:
    for num_nodes, curves in {1: figures.collectives, **figures.between_nodes}.items():
        for (operation, count), curve in curves.items():
            yield CollectiveFit(
                operation=operation,
                num_gpus=count,
                num_nodes=num_nodes,
                latency_s=curve.alpha_s,
                bytes_per_s=1 / curve.beta_s_per_byte if curve.beta_s_per_byte else None,
                misfit_fraction=curve.misfit_fraction,
            )
