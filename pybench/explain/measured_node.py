"""What a run of a node's suite measured, by its records or by its results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pybench.core.measurements import Measurements
from pybench.core.provenance import worker_packages
from pybench.core.statistics.interval import location
from pybench.model.manifest import Manifest
from pybench.model.record import RankReport
from pybench.model.results import Results
from pybench.model.suite import Point
from pybench.model.workloads.node import NodeSettings

# Of each rank in every step: what every GPU reached is known where records are.
_OF_EACH_GPU = ("matmul_flops_per_s", "memory_bytes_per_s")
_ON_GPUS = "launch_s"
NODE_METRICS = (*_OF_EACH_GPU, "peer_copy_bytes_per_s", "host_copy_bytes_per_s", "collective_s", _ON_GPUS)
"""The metrics that predictions are made from."""


@dataclass(frozen=True, kw_only=True)
class NodePoint:
    """One measured point: the location of each metric over steps and attempts, and what each GPU reached by name."""

    settings: NodeSettings
    values: Mapping[str, float]
    by_gpu: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MeasuredNode:
    """A node's run. ``has_each_gpu`` is False for results, whose figures are those of the slowest GPU.

    ``doubts`` are sentences about what its figures lack.
    """

    run_id: str
    fingerprint: str
    packages: Mapping[str, str]
    environment: Mapping[str, str]
    points: tuple[NodePoint, ...]
    has_each_gpu: bool
    doubts: tuple[str, ...] = ()

    @classmethod
    def of_run(cls, manifest: Manifest, measurements: Measurements) -> MeasuredNode:
        """From the records of a run."""
        return cls(
            run_id=manifest.run_id,
            fingerprint=manifest.fingerprint,
            packages=worker_packages(measurements.records),
            environment=manifest.environment,
            points=tuple(_of_records(measurements)),
            has_each_gpu=True,
        )

    @classmethod
    def of_results(cls, results: Results, settings: Mapping[str, NodeSettings]) -> MeasuredNode:
        """From the results of a run, and the ``settings`` of its points by their ids."""
        points = (
            NodePoint(
                settings=settings[point.id],
                values={
                    name: found.value
                    for name, found in point.metrics.items()
                    if name in NODE_METRICS and (name != _ON_GPUS or results.provenance.gpu_names)
                },
            )
            for point in results.points
            if point.id in settings
        )
        return cls(
            run_id=results.run_id,
            fingerprint=results.fingerprint,
            packages=results.provenance.packages,
            environment=results.provenance.environment or {},
            points=tuple(points),
            has_each_gpu=False,
        )


def _of_records(measurements: Measurements) -> Iterator[NodePoint]:
    for point in measurements.plan.points:
        if isinstance(point.settings, NodeSettings):
            samples = measurements.samples(point)
            names = [name for name in NODE_METRICS if name in samples]
            if _ON_GPUS in names and not _is_on_gpus(point, measurements):
                names.remove(_ON_GPUS)
            yield NodePoint(
                settings=point.settings,
                values={name: location(samples[name]) for name in names},
                by_gpu={name: _by_gpu(point, measurements, name) for name in names if name in _OF_EACH_GPU},
            )


def _is_on_gpus(point: Point, measurements: Measurements) -> bool:
    """A CPU launches nothing."""
    return all(rank.header.device == "cuda" for record in measurements.good(point.id) for rank in record.ranks)


def _by_gpu(point: Point, measurements: Measurements, metric: str) -> dict[str, float]:
    """What each GPU reached of a figure that every rank reports in every step."""
    reported: dict[str, list[list[float]]] = {}
    for record in measurements.good(point.id):
        for rank in record.ranks:
            for name in names_of(rank):
                reported.setdefault(name, []).append([step.values[metric] for step in rank.steps])
    return {name: location(samples) for name, samples in reported.items()}


def names_of(rank: RankReport) -> tuple[str, ...]:
    """The GPUs that a rank ran on: by UUID, on CPUs by rank."""
    return rank.header.all_uuids or (f"rank {rank.header.rank}",)
