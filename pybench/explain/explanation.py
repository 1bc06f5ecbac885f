"""A run's speedups against those that the node's own rates predict, and the parts of each shortfall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from pybench.core.measurements import Measurements
from pybench.core.provenance import differences, worker_packages
from pybench.explain.extrapolation import extrapolate
from pybench.explain.generation import launch_bound, refuse_launch_bound
from pybench.explain.measured_step import MeasuredStep, grouped, measured_steps
from pybench.explain.node import MeasuredNode, node_rates
from pybench.explain.predict import predicted_phases
from pybench.explain.rates import NodeRates, UnmeasuredError
from pybench.explain.step_time import Shortfall, StepTime, total
from pybench.explain.values import (
    CollectiveFit,
    ExplainedBaseline,
    ExplainedPoint,
    Explanation,
    Extrapolation,
)
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest

_OTHER_MACHINE = "the two runs are from machines, drivers or kernels that differ: predictions may not hold"
_NO_SINGLE_GPUS = "a results.json has the figures of the node's slowest GPU only; they are used for every GPU"
_OTHER_GPUS = "the node's run did not measure every GPU; the rates of its slowest are used for every GPU"
_MOST_VARIABLES = 2
# Fractions of the baseline's power and of a step from which GPUs are reported to wait. Four H100s drew up to 11 % less
# power in steps that were predicted within 3 %.
_LESS_POWER = 0.2
_UNEXPLAINED = 0.1


def explain(manifest: Manifest, measurements: Measurements, node: MeasuredNode) -> Explanation:
    """The baseline of each group of points of a model, the other points against it, and predictions for more GPUs.

    Raises ``UsageError`` when the run measured no model, or the node's run lacks the rates that every prediction needs.
    """
    groups = grouped(measured_steps(measurements))
    if not groups:
        raise UsageError(f"{manifest.run_id}: it measured no model; nothing to explain")
    notes = list(_cautions(manifest, measurements, node))
    baselines: list[ExplainedBaseline] = []
    points: list[ExplainedPoint] = []
    extrapolations: list[Extrapolation] = []
    fits: tuple[CollectiveFit, ...] = ()
    for group in groups:
        rates = node_rates(node, group[0].settings.dtype)
        if node.has_each_gpu and not all(name in rates.gpus for step in group for name in step.gpus):
            notes.append(f"{group[0].label}: {_OTHER_GPUS}")
            rates = replace(rates, gpus={})
        baselines.append(_baseline(rates, group[0]))
        if len(group) == 1:
            continue
        fits = tuple(_fits(rates))
        explained = [_explained(rates, group[0], other) for other in group[1:]]
        further, gaps = extrapolate(rates, group, explained)
        points += explained
        extrapolations += further
        notes += [f"{group[0].label}: {gap}" for gap in gaps]
    return Explanation(
        run_id=manifest.run_id,
        node_run_id=node.run_id,
        points=tuple(points),
        extrapolations=tuple(extrapolations),
        fits=fits,
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
    return replace(measured, parts=_by_name(total(predicted)), bound=bound)


def _explained(rates: NodeRates, base: MeasuredStep, other: MeasuredStep) -> ExplainedPoint:
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
        joined = rates.over(other.settings.num_nodes)
        refuse_launch_bound(other.rates(joined), other.point, other.samples, base.samples_each)
        baseline = base.as_baseline(base.predicted(rates))
        predicted = other.predicted(rates)
        even = predicted_phases(base.rates(joined), other.point, other.samples)
    except UnmeasuredError as error:
        return replace(measured, reason=str(error))
    share = other.samples / base.samples * base.point.num_gpus / other.point.num_gpus
    predicted_s = baseline.calibrated_s(predicted)
    explained = replace(
        measured,
        predicted_s=predicted_s,
        predicted_speedup=other.samples / predicted_s / base.rate,
        shortfall_s=other.step_s - share * base.step_s,
        parts=_by_name(baseline.shortfall(other.step_s, predicted=predicted, even=even, share=share)),
    )
    return replace(explained, wait=_wait(explained))


def _wait(point: ExplainedPoint) -> str | None:
    """A sentence if much of the step is unexplained and its GPUs draw much less power than the baseline's."""
    less, unexplained_s = point.power_fraction, (point.parts or {}).get("unexplained", 0.0)
    if less is None or less > -_LESS_POWER or unexplained_s < _UNEXPLAINED * point.measured_s:
        return None
    return (
        f"its GPUs draw {point.power_w:.0f} W each, the baseline's {point.baseline_power_w:.0f} W: they wait, for "
        "their CPUs or for each other; a larger batch gives each launch more work"
    )


def _by_name(parts: StepTime | Shortfall) -> dict[str, float]:
    return {name.removesuffix("_s"): value for name, value in asdict(parts).items()}


def _fits(rates: NodeRates) -> Iterator[CollectiveFit]:
    for num_nodes, curves in {1: rates.collectives, **rates.between_nodes}.items():
        for (operation, count), curve in curves.items():
            yield CollectiveFit(
                operation=operation,
                num_gpus=count,
                num_nodes=num_nodes,
                latency_s=curve.alpha_s,
                bytes_per_s=1 / curve.beta_s_per_byte if curve.beta_s_per_byte else None,
                misfit_fraction=curve.misfit_fraction,
            )
