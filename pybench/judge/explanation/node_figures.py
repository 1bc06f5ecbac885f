"""What the model of step times takes from a node's run."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.compute.comm_model.alpha_beta import AlphaBeta, fit
from pybench.compute.comm_model.figures import GpuFigures, NodeFigures
from pybench.compute.stats import location
from pybench.judge.measurements import Measurements
from pybench.model.errors import UsageError
from pybench.model.record import RankReport, Record
from pybench.model.suite import Point
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.host_device_copy import HostDeviceCopy
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.peer_copy import PeerCopy

_MIN_SIZES = 2


def node_figures(run_id: str, measurements: Measurements, dtype: str) -> NodeFigures:
    """Figures of the node, with products in ``dtype``. Raises ``UsageError`` when the run lacks the basic ones."""
    matmuls = [
        _by_gpu(point, measurements, "matmul_flops_per_s")
        for point, _ in measurements.measured("matmul_flops_per_s")
        if isinstance(point.settings, Matmul) and point.settings.precision == dtype
    ]
    memory = [
        _by_gpu(point, measurements, "memory_bytes_per_s")
        for point, _ in measurements.measured("memory_bytes_per_s")
        if isinstance(point.settings, MemoryBandwidth)
    ]
    if not matmuls or not memory:
        lacks = f"matmul in {dtype}" if not matmuls else "memory_bandwidth"
        raise UsageError(f"{run_id}: it measured no {lacks}; give a run of node_check on this machine")
    flops, moved, curves = _best(matmuls), _best(memory), _collectives(measurements)
    links = [
        location(samples)
        for point, samples in measurements.measured("peer_copy_bytes_per_s")
        if isinstance(point.settings, PeerCopy)
    ]
    return NodeFigures(
        matmul_flops_per_s=min(flops.values()),
        memory_bytes_per_s=min(moved.values()),
        peer_bytes_per_s=min(links, default=None),
        to_host_bytes_per_s=_host_copy(measurements, "d2h"),
        from_host_bytes_per_s=_host_copy(measurements, "h2d"),
        launch_s=_launch_s(measurements),
        gpus={
            name: GpuFigures(matmul_flops_per_s=flops[name], memory_bytes_per_s=moved[name])
            for name in flops
            if name in moved
        },
        collectives=curves.pop(1, {}),
        between_nodes=curves,
    )


def _host_copy(measurements: Measurements, direction: str) -> float | None:
    """The most that the slowest GPU reached in one direction."""
    found = [
        location(samples)
        for point, samples in measurements.measured("host_copy_bytes_per_s")
        if isinstance(point.settings, HostDeviceCopy) and point.settings.direction == direction
    ]
    return max(found, default=None)


def _launch_s(measurements: Measurements) -> float | None:
    """Of the fastest point on GPUs; a CPU launches nothing."""
    found = [
        location(samples)
        for point, samples in measurements.measured("launch_s")
        if all(rank.header.device == "cuda" for record in measurements.good(point.id) for rank in record.ranks)
    ]
    return min(found, default=None)


def gpu_names(records: Sequence[Record]) -> tuple[str, ...]:
    """The GPUs that the attempts ran on: by UUID, on CPUs by rank."""
    ranks = (rank for record in records for rank in record.ranks)
    return tuple(dict.fromkeys(name for rank in ranks for name in _names(rank)))


def _names(rank: RankReport) -> tuple[str, ...]:
    return rank.header.all_uuids or (f"rank {rank.header.rank}",)


def _by_gpu(point: Point, measurements: Measurements, metric: str) -> dict[str, float]:
    """What each GPU reached of a figure that every rank reports in every step."""
    reported: dict[str, list[list[float]]] = {}
    for record in measurements.good(point.id):
        for rank in record.ranks:
            for name in _names(rank):
                reported.setdefault(name, []).append([step.values[metric] for step in rank.steps])
    return {name: location(samples) for name, samples in reported.items()}


def _best(points: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of the points that saw the most GPUs the one whose slowest reached the most."""
    return max(points, key=lambda gpus: (len(gpus), min(gpus.values())))


def _collectives(measurements: Measurements) -> dict[int, dict[tuple[str, int], AlphaBeta]]:
    """By number of nodes: a fit for each operation and count that was measured at two sizes or more."""
    curves: dict[tuple[int, str, int], dict[int, float]] = {}
    for point, samples in measurements.measured("collective_s"):
        assert isinstance(point.settings, Collective), "no other workload has this metric"
        if point.settings.groups == "all":  # a rail joins a part of the GPUs
            key = point.settings.num_nodes, point.settings.operation, point.settings.gpus
            curves.setdefault(key, {})[point.settings.message_bytes] = location(samples)
    fits: dict[int, dict[tuple[str, int], AlphaBeta]] = {}
    for (num_nodes, operation, count), curve in curves.items():
        if len(curve) >= _MIN_SIZES:
            fits.setdefault(num_nodes, {})[operation, count] = fit(list(curve.items()))
    return fits
