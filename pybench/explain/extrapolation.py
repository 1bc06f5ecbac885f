"""A group's speedups on more GPUs than were measured, and why there are none where there are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pybench.core.feasibility.point import batch_reasons, shape_reasons
from pybench.core.feasibility.train import pass_reasons, split_reasons
from pybench.explain.comm_model.figures import NodeFigures
from pybench.explain.comm_model.scale_out import Law, predict
from pybench.explain.measured_step import MeasuredStep
from pybench.explain.predicted_phases import predicted_phases, raised_degree
from pybench.explain.values import ExplainedPoint, Extrapolation
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.settings import ModelSettings
from pybench.model.workloads.train import Train

COUNTS = (4, 8, 16, 64, 256, 1024)


def extrapolate(
    figures: NodeFigures, group: Sequence[MeasuredStep], explained: Sequence[ExplainedPoint]
) -> tuple[list[Extrapolation], list[str]]:
    """Speedups over one GPU, and notes on what could not be predicted.

    The alpha-beta law is the largest point's, once by rings and once by trees.
    """
    if (refusal := _refusal(group)) is not None:
        return [], [f"not extrapolated: {refusal}"]
    base, last = group[0], group[-1]
    own, reason = last.point.num_gpus, explained[-1].reason
    larger = [count for count in COUNTS if count > own]
    odd = [count for count in larger if count % own]
    splits = {count: _unsplit(last, count // own) for count in larger if count not in odd}
    counts = [count for count, unsplit in splits.items() if unsplit is None]
    notes = [f"not extrapolated to {_listed(odd)} GPUs: no multiples of {own}"] if odd else []
    if too_many := [count for count in splits if count not in counts]:
        notes.append(f"not extrapolated to {_listed(too_many)} GPUs: {splits[too_many[0]]}")
    if reason is not None and counts:
        notes.append(f"extrapolated from measured speedups alone: {reason}")
    laws = [] if reason else [_law(figures, base, last, tree=tree) for tree in (False, True)]
    measured = {point.num_gpus: point.measured_speedup for point in explained}
    found = [
        Extrapolation(
            benchmark=base.point.benchmark,
            group=base.group,
            num_gpus=one.count,
            speedup=one.speedup,
            low=one.low,
            high=one.high,
        )
        for one in predict(measured, counts, laws)
    ]
    return found, notes


def _refusal(group: Sequence[MeasuredStep]) -> str | None:
    """Why no law can be fitted to the group of two points or more."""
    least = group[0].point.num_gpus
    if least != 1:
        return f"the laws start from one GPU, and the fewest here are {least}"
    (count, times), *_ = Counter(step.point.num_gpus for step in group).most_common(1)
    return f"{times} points have {count} GPUs, and a law has one speedup for each number" if times > 1 else None


def _unsplit(last: MeasuredStep, grown: int) -> str | None:
    """Why the model or its batch can't be split over so many times the GPUs of the largest point."""
    settings, shape, degree = last.settings, last.point.shape, raised_degree(last.settings)
    if shape is None:
        return None
    degrees: dict[str, Any] = {degree: int(getattr(settings, degree)) * grown}
    return next(_split_reasons(replace(settings, **degrees), shape), None)


def _split_reasons(settings: ModelSettings, shape: DecoderShape) -> Iterator[str]:
    yield from shape_reasons(settings, shape)
    yield from batch_reasons(settings)
    if isinstance(settings, Train):
        yield from split_reasons(settings, shape)
        yield from pass_reasons(settings)


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(str(count) for count in counts)


def _law(figures: NodeFigures, base: MeasuredStep, last: MeasuredStep, *, tree: bool) -> Law:
    weak, joined = last.samples > base.samples, figures.over(last.settings.num_nodes)
    baseline = base.as_baseline(base.predicted(figures))

    def law(count: int) -> float:
        grown = count // last.point.num_gpus
        samples = last.samples * grown if weak else last.samples
        wider = _wider(last.figures(joined), last, grown, tree=tree)
        predicted = predicted_phases(wider, last.point, samples, grown=grown)
        return samples / baseline.calibrated_s(predicted) / base.rate

    return law


def _wider(figures: NodeFigures, last: MeasuredStep, grown: int, *, tree: bool) -> NodeFigures:
    """With the collectives of the degree that grows as they would be for so many times the GPUs."""
    degree = int(getattr(last.settings, raised_degree(last.settings)))
    wider = {
        (operation, degree * grown): curve.at(operation, degree, degree * grown, tree=tree)
        for (operation, count), curve in figures.collectives.items()
        if count == degree
    }
    return replace(figures, collectives={**figures.collectives, **wider})
