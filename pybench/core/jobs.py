"""What a whole training job takes on each number of GPUs, and what more of them save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pybench.core.evidence import ratio_evidence, value_evidence
from pybench.core.job_steps import job_steps
from pybench.core.measurements import Measurements
from pybench.core.statistics.interval import NoRatioError
from pybench.model.results import Estimate, JobResult
from pybench.model.suite import Point
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import GPU_AXES, NODES
from pybench.model.workloads.train import Train

_TIME, _ENERGY = "job_h", "job_energy_j"


def job_results(measurements: Measurements) -> tuple[JobResult, ...]:
    """One row for each measured point that has a job; points that differ in their GPUs alone stand together."""
    groups: dict[str, list[Point]] = {}
    for point, _ in measurements.measured(_TIME):
        elsewhere = sorted((name, value) for name, value in point.axes.items() if name not in {*GPU_AXES, NODES})
        groups.setdefault(repr((point.benchmark, elsewhere)), []).append(point)
    return tuple(row for group in groups.values() for row in _rows(measurements, group))


def _rows(measurements: Measurements, group: Sequence[Point]) -> Iterator[JobResult]:
    ordered = sorted(group, key=lambda point: point.num_gpus)
    for point in ordered:
        job = point.job
        assert job is not None, "only points with a job have its length"
        baseline = None if point is ordered[0] else ordered[0]
        yield JobResult(
            benchmark=point.benchmark,
            point_id=point.id,
            baseline_id=None if baseline is None else baseline.id,
            num_gpus=point.num_gpus,
            samples=job.samples,
            epochs=job.epochs,
            steps=_steps(measurements, point),
            time_h=_estimate(measurements, _TIME, point),
            energy_j=_estimate(measurements, _ENERGY, point) if _has(measurements, _ENERGY, point) else None,
            time_saved_fraction=_saved(measurements, _TIME, point, baseline),
            energy_saved_fraction=_saved(measurements, _ENERGY, point, baseline),
        )


def _steps(measurements: Measurements, point: Point) -> int:
    assert point.job is not None
    assert isinstance(point.settings, Train)
    first = measurements.good(point.id)[0]
    return job_steps(point.job, point.settings, first.ranks[0].steps[0].work.samples)


def _has(measurements: Measurements, metric: str, point: Point) -> bool:
    return metric in measurements.samples(point)


def _estimate(measurements: Measurements, metric: str, point: Point) -> Estimate:
    value, low, high = value_evidence(measurements, metric, point).interval
    return Estimate(value=value, low=low, high=high, unit=METRICS[metric].unit)


def _saved(measurements: Measurements, metric: str, point: Point, baseline: Point | None) -> Estimate | None:
    """1 less the ratio to the baseline, of which the ends change places."""
    if baseline is None or not all(_has(measurements, metric, each) for each in (point, baseline)):
        return None
    try:
        value, low, high = ratio_evidence(measurements, metric, point, baseline).interval
    except NoRatioError:
        return None
    ends = (None, None) if low is None or high is None else (1 - high, 1 - low)
    return Estimate(value=1 - value, low=ends[0], high=ends[1], unit="")
