"""Rates of a node, from a run of its check: by its records, or by its results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pybench.core.measurements import Measurements
from pybench.core.provenance import worker_packages
from pybench.core.statistics.interval import location
from pybench.explain.rates import AlphaBeta, GpuRates, NodeRates, fit
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest
from pybench.model.record import RankReport, Record
from pybench.model.results import Results
from pybench.model.suite import Point
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.traits import NodeSettings

# Metrics that each rank reports in every step, so that records have a figure of each GPU.
_OF_EACH_GPU = ("matmul_flops_per_s", "memory_bytes_per_s")
_ON_GPUS = "launch_s"
NODE_METRICS = (*_OF_EACH_GPU, "peer_copy_bytes_per_s", "collective_s", _ON_GPUS)
"""The metrics that predictions are made from."""
_MIN_SIZES = 2


@dataclass(frozen=True, kw_only=True)
class NodePoint:
    """One measured point: the location of each metric over steps and attempts, and the figure of each GPU by name."""

    settings: NodeSettings
    values: Mapping[str, float]
    by_gpu: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def slowest(self, metric: str) -> float:
        """The figure of the slowest GPU."""
        return min(self.by_gpu.get(metric, {}).values(), default=self.values[metric])


@dataclass(frozen=True, kw_only=True)
class MeasuredNode:
    """A node's run. ``has_each_gpu`` is False for results, which have the figures of the slowest GPU.

    ``doubts`` are sentences about weaknesses of its figures.
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
                    name: estimate.value
                    for name, estimate in point.metrics.items()
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
    """The location of each GPU's figure; every rank reports it in every step."""
    reported: dict[str, list[list[float]]] = {}
    for record in measurements.good(point.id):
        for rank in record.ranks:
            for name in names_of(rank):
                reported.setdefault(name, []).append([step.values[metric] for step in rank.steps])
    return {name: location(samples) for name, samples in reported.items()}


def names_of(rank: RankReport) -> tuple[str, ...]:
    """The GPUs of a rank: by UUID, on CPUs by rank."""
    return rank.header.all_uuids or (f"rank {rank.header.rank}",)


def gpu_names(records: Sequence[Record]) -> tuple[str, ...]:
    """The GPUs of the attempts: by UUID, on CPUs by rank."""
    ranks = (rank for record in records for rank in record.ranks)
    return tuple(dict.fromkeys(name for rank in ranks for name in names_of(rank)))


def node_rates(node: MeasuredNode, dtype: str) -> NodeRates:
    """Rates of the node, with products in ``dtype``. Raises ``UsageError`` when the run lacks products or memory."""
    products = [p for p in node.points if isinstance(p.settings, Matmul) and p.settings.precision == dtype]
    memories = [p for p in node.points if isinstance(p.settings, MemoryBandwidth)]
    matmul, memory = _best(products, "matmul_flops_per_s"), _best(memories, "memory_bytes_per_s")
    if matmul is None or memory is None:
        lacks = f"matmul in {dtype}" if matmul is None else "memory_bandwidth"
        raise UsageError(f"{node.run_id}: it measured no {lacks}; give a run of node_check on this machine")
    flops, moved = matmul.by_gpu.get("matmul_flops_per_s", {}), memory.by_gpu.get("memory_bytes_per_s", {})
    curves = _collectives(node)
    return NodeRates(
        matmul_flops_per_s=matmul.slowest("matmul_flops_per_s"),
        memory_bytes_per_s=memory.slowest("memory_bytes_per_s"),
        peer_bytes_per_s=min(_values(node, "peer_copy_bytes_per_s"), default=None),
        launch_s=min(_values(node, "launch_s"), default=None),
        gpus={
            name: GpuRates(matmul_flops_per_s=flops[name], memory_bytes_per_s=moved[name])
            for name in flops.keys() & moved.keys()
        },
        collectives=curves.pop(1, {}),
        between_nodes=curves,
    )


def _values(node: MeasuredNode, metric: str) -> Iterator[float]:
    return (point.values[metric] for point in node.points if metric in point.values)


def _best(points: Sequence[NodePoint], metric: str) -> NodePoint | None:
    """The point on the most GPUs; of several, that whose slowest GPU has the highest figure."""
    measured = [point for point in points if metric in point.values]
    return max(measured, key=lambda point: (point.settings.gpus, point.slowest(metric)), default=None)


def _collectives(node: MeasuredNode) -> dict[int, dict[tuple[str, int], AlphaBeta]]:
    """A fit for each operation and number of GPUs with two measured sizes, by the number of nodes."""
    curves: dict[tuple[int, str, int], dict[int, float]] = {}
    for point in node.points:
        settings = point.settings
        # A rail joins only a part of the GPUs.
        if isinstance(settings, Collective) and settings.groups == "all" and "collective_s" in point.values:
            key = settings.num_nodes, settings.operation, settings.gpus
            curves.setdefault(key, {})[settings.message_bytes] = point.values["collective_s"]
    fits: dict[int, dict[tuple[str, int], AlphaBeta]] = {}
    for (num_nodes, operation, count), curve in curves.items():
        if len(curve) >= _MIN_SIZES:
            fits.setdefault(num_nodes, {})[operation, count] = fit(list(curve.items()))
    return fits
