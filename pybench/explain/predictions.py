"""Speedups that a node's own rates predict, as limits: each with the band below it that healthy runs keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from pybench.core.numbers import plain
from pybench.explain.measured_step import MeasuredStep, groups_of, shared_rates
from pybench.explain.node import MeasuredNode
from pybench.explain.step_time import UnmeasuredError
from pybench.files.shipped import Band, load_bands, load_models
from pybench.model.decoder_shape import Architecture
from pybench.model.errors import UsageError
from pybench.model.results import PointResult, Results
from pybench.model.suite import Effort, Point
from pybench.model.text import plural
from pybench.model.verdict import Prediction
from pybench.model.workloads.registry import SETTINGS_OF
from pybench.model.workloads.settings import PARALLEL_AXES, ModelSettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn

WIDEST_BAND = 0.15
"""A wider band gives no verdict, a fraction of the prediction."""


def predictions(steps: Iterable[MeasuredStep], node: MeasuredNode) -> tuple[Prediction, ...]:
    """Speedup of each point over points of its group with fewer GPUs, at most linear; for work with a band."""
    return tuple(
        Prediction(
            point_id=other.point.id,
            baseline_id=base.point.id,
            speedup=min(speedup, other.point.num_gpus / base.point.num_gpus),
            band_fraction=band.fraction,
            source=f"rates of {node.run_id}; band of {band.fraction:.1%}: {plural(band.num_speedups, 'speedup')} on "
            f"{plural(band.num_machines, 'machine')}{extrapolated}",
            communication_fraction=communication,
            rates_run=node.run_id,
        )
        for base, other, speedup, communication, extrapolated in predicted_speedups(steps, node)
        if (band := band_of(base.point, other.point)) is not None
    )


def band_of(base: Point, other: Point) -> Band | None:
    """The band of a predicted rate of ``other`` over that of ``base``; ``None`` where it gives no verdict."""
    if not isinstance(base.settings, ModelSettings) or not isinstance(other.settings, ModelSettings):
        return None
    band = load_bands().get(kind_of(base.settings, other.settings))
    return band if band is not None and band.fraction <= WIDEST_BAND else None


def predicted_speedups(
    steps: Iterable[MeasuredStep], node: MeasuredNode
) -> Iterator[tuple[MeasuredStep, MeasuredStep, float, float, str]]:
    """Baseline, point, predicted ratio of their rates, share of communication in the last phase, extrapolated messages.

    Pairs that the model cannot predict are left out.
    """
    for group in groups_of(steps):
        for base, other in combinations(group, 2):
            try:
                rates = shared_rates(node, (base, other))
                baseline, phases = other.against(base, rates)
            except (UnmeasuredError, UsageError):
                continue
            if base.point.num_gpus < other.point.num_gpus:
                speedup = other.samples / baseline.calibrated_s(phases) / base.rate
                sizes = [f"{name} of {plain(size / 2**20, 3)} MiB" for name, size in sorted(rates.extrapolated)]
                note = f"; beyond the measured sizes: {', '.join(sizes)}" if sizes else ""
                yield base, other, speedup, baseline.communication_fraction(phases), note


def kind_of(base: ModelSettings, other: ModelSettings) -> str:
    """The kind of parallelism that more GPUs raise, such as ``train data_parallel`` or ``generate tensor_parallel``."""
    raised = [name for name in PARALLEL_AXES if getattr(other, name) > getattr(base, name)]
    backend = () if isinstance(other, Train) else (other.backend,)
    return " ".join((other.workload, *backend, *raised))


def steps_of_results(results: Results) -> list[MeasuredStep]:
    """Steps of the model points of a kept ``results.json``, where it shows their work."""
    models, steps = load_models(), []
    for result in (point for point in results.points if point.status == "ok" and "step_s" in point.metrics):
        point = point_of_result(result, models)
        if point is None or not isinstance(point.settings, ModelSettings) or isinstance(point.settings, Turn):
            continue
        values = {name: estimate.value for name, estimate in result.metrics.items()}
        rate = values.get("samples_per_s", values.get("requests_per_s"))
        samples: float | None = None if rate is None else round(rate * values["step_s"])
        if isinstance(point.settings, Train) and not point.settings.finds_batch_size:
            samples = point.settings.effective_batch_size
        if samples is not None:
            step = MeasuredStep(
                point=point,
                step_s=values["step_s"],
                prefill_s=None if isinstance(point.settings, Train) else values.get("ttft_p99_s"),
                samples=samples,
                gpus=(),
                input_wait_fraction=values.get("input_wait_fraction"),
            )
            steps.append(step)
    return steps


def point_of_result(result: PointResult, models: dict[str, Architecture]) -> Point | None:
    """The planned point of a measured one; ``None`` where its settings are not those of today's workloads."""
    kind = SETTINGS_OF.get(result.settings.get("workload", ""))
    if kind is None:
        return None
    names = {field.name for field in dataclasses.fields(kind)}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in result.settings.items()
        if name in names and value is not None
    }
    try:
        settings = kind(**given)
    except (TypeError, ValueError):
        return None
    return Point(
        id=result.id,
        benchmark=result.benchmark,
        axes=result.axes,
        settings=settings,
        effort=Effort(),
        architecture=models.get(getattr(settings, "model", "")),
    )
