"""A group's speedups on more GPUs than were measured, each with the range of three laws.

Amdahl's law (a serial fraction) and Gunther's Universal Scalability Law (also a cost that grows with each pair of GPUs:
N. J. Gunther, Guerrilla Capacity Planning, 2007, chapter 4) are fitted to the measured speedups. The third law is the
prediction by the node's rates, with rings and with trees. Which law is right is unknown, so the range covers all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Any

from pybench.core.feasibility import batch_reasons, shape_reasons
from pybench.core.train_feasibility import pass_reasons, split_reasons
from pybench.explain.measured_step import MeasuredStep
from pybench.explain.predict import predicted_phases, raised_degree
from pybench.explain.rates import NodeRates
from pybench.explain.values import ExplainedPoint, Extrapolation
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.settings import ModelSettings
from pybench.model.workloads.train import Train

COUNTS = (4, 8, 16, 64, 256, 1024)
Law = Callable[[int], float]
"""Speedup over one GPU at a number of GPUs."""


def extrapolate(
    rates: NodeRates, group: Sequence[MeasuredStep], explained: Sequence[ExplainedPoint]
) -> tuple[list[Extrapolation], list[str]]:
    """Speedups over one GPU, and notes on the counts that could not be predicted."""
    if (refusal := _refusal(group)) is not None:
        return [], [f"not extrapolated: {refusal}"]
    base, last = group[0], group[-1]
    num_gpus, reason = last.point.num_gpus, explained[-1].reason
    larger = [count for count in COUNTS if count > num_gpus]
    odd = [count for count in larger if count % num_gpus]
    splits = {count: _unsplit(last, count // num_gpus) for count in larger if count not in odd}
    counts = [count for count, unsplit in splits.items() if unsplit is None]
    notes = [f"not extrapolated to {_listed(odd)} GPUs: no multiples of {num_gpus}"] if odd else []
    if too_many := [count for count in splits if count not in counts]:
        notes.append(f"not extrapolated to {_listed(too_many)} GPUs: {splits[too_many[0]]}")
    if reason is not None and counts:
        notes.append(f"extrapolated from measured speedups alone: {reason}")
    measured = {point.num_gpus: point.measured_speedup for point in explained}
    by_rates = [] if reason else [_law(rates, base, last, tree=tree) for tree in (False, True)]
    laws = (amdahl(measured), usl(measured), *by_rates)
    ranges = ((count, [min(float(count), law(count)) for law in laws]) for count in counts)
    return [
        Extrapolation(
            benchmark=base.point.benchmark,
            group=base.group,
            num_gpus=count,
            speedup=(min(speedups) + max(speedups)) / 2,
            low=min(speedups),
            high=max(speedups),
        )
        for count, speedups in ranges
    ], notes


def _refusal(group: Sequence[MeasuredStep]) -> str | None:
    """Why no law can be fitted to the group of two points or more."""
    least = group[0].point.num_gpus
    if least != 1:
        return f"the laws start from one GPU, and the fewest here are {least}"
    (count, times), *_ = Counter(step.point.num_gpus for step in group).most_common(1)
    return f"{times} points have {count} GPUs, and a law has one speedup for each number" if times > 1 else None


def _unsplit(last: MeasuredStep, grown: int) -> str | None:
    """Why the model or its batch can't be split over ``grown`` times the GPUs of the largest point."""
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


def _law(rates: NodeRates, base: MeasuredStep, last: MeasuredStep, *, tree: bool) -> Law:
    """The prediction from the largest point, with the collectives of the degree that grows over more GPUs."""
    weak, joined = last.samples > base.samples, last.rates(rates.over(last.settings.num_nodes))
    baseline = base.as_baseline(base.predicted(rates))
    degree = int(getattr(last.settings, raised_degree(last.settings)))

    def law(count: int) -> float:
        grown = count // last.point.num_gpus
        samples = last.samples * grown if weak else last.samples
        wider = {
            (operation, degree * grown): curve.at(operation, degree, degree * grown, tree=tree)
            for (operation, measured), curve in joined.collectives.items()
            if measured == degree
        }
        wider_rates = replace(joined, collectives={**joined.collectives, **wider})
        predicted = predicted_phases(wider_rates, last.point, samples, grown=grown)
        return samples / baseline.calibrated_s(predicted) / base.rate

    return law


def amdahl(measured: Mapping[int, float]) -> Law:
    """S(N) = N / (1 + sigma (N - 1)), sigma by least squares of N/S - 1 over N - 1. Raises ``ValueError``."""
    excess = _excess(measured)
    sigma = max(0.0, fsum(y * (n - 1) for n, y in excess) / fsum((n - 1) ** 2 for n, _ in excess))
    return lambda count: count / (1 + sigma * (count - 1))


def usl(measured: Mapping[int, float]) -> Law:
    """S(N) = N / (1 + sigma (N - 1) + kappa N (N - 1)), by least squares; one count alone gives Amdahl's law.

    Raises ``ValueError``.
    """
    excess = _excess(measured)
    if len(excess) < 2:  # noqa: PLR2004 - two unknowns
        return amdahl(measured)
    # N/S - 1 over N - 1 is a line in N: sigma + kappa N.
    counts, ratios = [n for n, _ in excess], [y / (n - 1) for n, y in excess]
    mean_n, mean_y = fsum(counts) / len(counts), fsum(ratios) / len(ratios)
    spread = fsum((n - mean_n) ** 2 for n in counts)
    kappa = fsum((n - mean_n) * (y - mean_y) for n, y in zip(counts, ratios, strict=True)) / spread
    sigma = mean_y - kappa * mean_n
    if kappa <= 0:
        return amdahl(measured)
    if sigma < 0:
        sigma, kappa = 0.0, max(0.0, fsum(y * n for n, y in zip(counts, ratios, strict=True)))
        kappa /= fsum(n * n for n in counts)
    return lambda count: count / (1 + sigma * (count - 1) + kappa * count * (count - 1))


def _excess(measured: Mapping[int, float]) -> list[tuple[int, float]]:
    """(N, N/S - 1) for every count above 1."""
    excess = [(count, count / speedup - 1) for count, speedup in sorted(measured.items()) if count > 1]
    if not excess:
        raise ValueError("a law needs a measured speedup of more than one GPU")
    return excess
