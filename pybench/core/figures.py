"""The figures that a run shows to other runs, from its results."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean

from pybench.core.keys import run_keys
from pybench.model.figures import NO_MEDIANS, PointFigures, RunFigures
from pybench.model.gpu_state import GpuState
from pybench.model.results import Estimate, PointResult, Results
from pybench.model.workloads.registry import HEADLINES

WATCHED = (
    *HEADLINES,
    "ttft_s",
    "tpot_s",
    "energy_j_per_output_token",
    "energy_j_per_token",
    "energy_j_per_sample",
    "peak_memory_bytes",
)
"""Metrics that are compared unless others are named: speed, latency, energy for each unit of work, memory."""
_SAME_AS_HEADLINE = "step_s"
_ENERGY_OF_STEP = "energy_j"


def run_figures(results: Results, metrics: Collection[str] = ()) -> RunFigures:
    """Figures of the watched metrics, and of ``metrics``, at every point of the suite; absent ones have a reason."""
    return RunFigures(
        run_id=results.run_id,
        created_utc=results.provenance.created_utc,
        suite=results.suite,
        verdict=results.verdict,
        keys=run_keys(results),
        points=tuple(_point(point, metrics) for point in results.points),
        part_of=results.part_of,
        kept_by=next((option for option in results.options if option.startswith("-k ")), None),
    )


def _point(point: PointResult, metrics: Collection[str]) -> PointFigures:
    found = {name: _medians(point.metrics[name]) for name in _names(point, metrics)}
    medians = {name: values for name, values in found.items() if values}
    return PointFigures(
        id=point.id,
        benchmark=point.benchmark,
        axes=point.axes,
        num_gpus=point.num_gpus,
        digest=point.digest,
        medians=medians,
        absence=None if medians else _absence(point),
        num_failed=point.failed_attempts,
        settings=point.settings,
        sm_clock_hz=_mean_clock_hz(point.gpu_states),
        temperature_c=max((t for gpu in point.gpu_states if (t := gpu.temperature_c) is not None), default=None),
        held_by=tuple(sorted({word for gpu in point.gpu_states for word in gpu.held_by or ()})),
        flags=point.flags,
        is_missing=not medians and point.status in {"failed", "missing", "does_not_fit"},
    )


def _names(point: PointResult, metrics: Collection[str]) -> list[str]:
    """A step's time only where no headline has the same meaning, its joules where nothing divides them."""
    watched = [name for name in WATCHED if name in point.metrics]
    if len([name for name in watched if name in HEADLINES]) > 1:
        watched = [name for name in watched if name != _SAME_AS_HEADLINE]
    if not any(name.startswith(f"{_ENERGY_OF_STEP}_per") for name in watched) and _ENERGY_OF_STEP in point.metrics:
        watched.append(_ENERGY_OF_STEP)
    return list(dict.fromkeys((*watched, *(name for name in metrics if name in point.metrics))))


def _medians(estimate: Estimate) -> tuple[float, ...]:
    """None where a value is no number."""
    return estimate.medians if all(map(math.isfinite, estimate.medians)) else ()


def _absence(point: PointResult) -> str:
    if point.status != "ok":
        return point.reason or point.status
    return NO_MEDIANS


def _mean_clock_hz(states: Sequence[GpuState]) -> float | None:
    clocks_hz = [gpu.sm_clock_hz for gpu in states if gpu.sm_clock_hz is not None]
    return fmean(clocks_hz) if clocks_hz else None
