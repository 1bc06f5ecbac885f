"""A run's speedups beside those that a node's own figures predict, and what each shortfall is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pybench.compute.comm_model.alpha_beta import AlphaBeta
from pybench.compute.comm_model.figures import NodeFigures, UnmeasuredError
from pybench.compute.comm_model.scale_out import Law, predict
from pybench.compute.comm_model.step_time import attribute, calibrated_s
from pybench.compute.stats import location
from pybench.judge.node_figures import node_figures
from pybench.judge.predicted_step import predicted_step
from pybench.judge.summary import metric_samples
from pybench.model.errors import UsageError
from pybench.model.explanation import ExplainedPoint, Explanation, Extrapolation
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import AxisValue, Point
from pybench.model.workloads.settings import PARALLEL_AXES, ModelSettings
from pybench.model.workloads.train import Train

COUNTS = (16, 64, 256, 1024)


@dataclass(frozen=True)
class _Measured:
    """A point with its median step and the samples in it."""

    point: Point
    step_s: float
    samples: float

    @property
    def rate(self) -> float:
        return self.samples / self.step_s

    @property
    def beyond_shrinks(self) -> bool:
        """Whether what it takes beyond the model is kernels, as in training, and not launches."""
        return isinstance(self.point.settings, Train)


def explain(
    manifest: Manifest, records: Sequence[Record], node: Manifest, node_records: Sequence[Record]
) -> Explanation:
    """Every point of a model's workload above the baseline of its group, then predictions for more GPUs.

    Raises ``UsageError`` when the run has no such point, or the node's run lacks what any prediction needs.
    """
    groups = _groups(manifest, records)
    if not any(len(group) > 1 for group in groups):
        raise UsageError(f"{manifest.run_id}: it measured no model on two numbers of GPUs; nothing to explain")
    notes = [] if manifest.fingerprint == node.fingerprint else [_OTHER_MACHINE]
    points: list[ExplainedPoint] = []
    extrapolations: list[Extrapolation] = []
    for group in groups:
        settings = group[0].point.settings
        assert isinstance(settings, ModelSettings)
        figures = node_figures(node, node_records, settings.dtype)
        own = [_explained(figures, group[0], other) for other in group[1:]]
        points += own
        extrapolations += _extrapolations(figures, group, own)
    return Explanation(
        run_id=manifest.run_id,
        node_run_id=node.run_id,
        points=tuple(points),
        extrapolations=tuple(extrapolations),
        notes=tuple(notes),
    )


_OTHER_MACHINE = "the two runs are from machines, drivers or packages that differ: predictions may not hold"


def _groups(manifest: Manifest, records: Sequence[Record]) -> list[list[_Measured]]:
    """Measured points of model workloads that differ in their parallel degrees alone, the fewest GPUs first."""
    groups: dict[str, list[_Measured]] = {}
    for point in manifest.plan.points:
        samples = metric_samples(point, records).get("step_s")
        if samples is None or not isinstance(point.settings, ModelSettings):
            continue
        first = next(record for record in records if record.point_id == point.id and record.ok)
        work = float(first.ranks[0].steps[0].work.samples)
        key = f"{point.benchmark} {sorted(_group(point).items())!r}"
        groups.setdefault(key, []).append(_Measured(point, location(samples), work))
    return [sorted(group, key=lambda measured: measured.point.num_gpus) for group in groups.values()]


def _group(point: Point) -> dict[str, AxisValue]:
    return {name: value for name, value in point.axes.items() if name not in PARALLEL_AXES}


def _explained(figures: NodeFigures, base: _Measured, other: _Measured) -> ExplainedPoint:
    measured = ExplainedPoint(
        point_id=other.point.id,
        baseline_id=base.point.id,
        num_gpus=other.point.num_gpus,
        measured_s=other.step_s,
        measured_speedup=other.rate / base.rate,
    )
    try:
        baseline = predicted_step(figures, base.point, base.samples)
        predicted = predicted_step(figures, other.point, other.samples)
    except UnmeasuredError as error:
        return replace(measured, reason=str(error))
    predicted_s = calibrated_s(predicted, baseline, base.step_s, beyond_shrinks=base.beyond_shrinks)
    share = other.samples / base.samples * base.point.num_gpus / other.point.num_gpus
    parts = attribute(
        other.step_s,
        predicted,
        base.step_s,
        baseline,
        share=share,
        imbalance_fraction=figures.imbalance_fraction,
        beyond_shrinks=base.beyond_shrinks,
    )
    return replace(
        measured,
        predicted_s=predicted_s,
        predicted_speedup=other.samples / predicted_s / base.rate,
        shortfall_s=other.step_s - share * base.step_s,
        parts={name.removesuffix("_s"): value for name, value in asdict(parts).items()},
    )


def _extrapolations(
    figures: NodeFigures, group: Sequence[_Measured], explained: Sequence[ExplainedPoint]
) -> Iterator[Extrapolation]:
    """From one GPU on; the alpha-beta law is the largest point's, once by rings and once by trees."""
    base, last = group[0], group[-1]
    if base.point.num_gpus != 1 or len(group) == 1:
        return
    measured = {point.num_gpus: point.measured_speedup for point in explained}
    laws = [] if explained[-1].predicted_s is None else [_law(figures, base, last, tree) for tree in (False, True)]
    counts = [count for count in COUNTS if count > last.point.num_gpus and count % last.point.num_gpus == 0]
    for found in predict(measured, counts, laws):
        yield Extrapolation(
            benchmark=base.point.benchmark,
            group=_group(base.point),
            num_gpus=found.count,
            speedup=found.speedup,
            low=found.low,
            high=found.high,
        )


def _law(figures: NodeFigures, base: _Measured, last: _Measured, tree: bool) -> Law:
    weak = last.samples > base.samples
    baseline = predicted_step(figures, base.point, base.samples)

    def law(count: int) -> float:
        wider = replace(figures, collectives=_wider(figures, last.point.num_gpus, count, tree=tree))
        grown = count // last.point.num_gpus
        samples = last.samples * grown if weak else last.samples
        predicted = predicted_step(wider, last.point, samples, grown=grown)
        predicted_s = calibrated_s(predicted, baseline, base.step_s, beyond_shrinks=base.beyond_shrinks)
        return samples / predicted_s / base.rate

    return law


def _wider(figures: NodeFigures, count: int, wanted: int, *, tree: bool) -> Mapping[tuple[str, int], AlphaBeta]:
    """The collectives of ``count`` GPUs, as they would be for ``wanted``."""
    return {
        (operation, wanted): curve.at(operation, count, wanted, tree=tree)
        for (operation, own), curve in figures.collectives.items()
        if own == count
    }
