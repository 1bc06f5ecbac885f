"""What the model of step times takes from a node's run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pybench.explain.comm_model.alpha_beta import AlphaBeta, fit
from pybench.explain.comm_model.figures import GpuFigures, NodeFigures
from pybench.explain.measured_node import MeasuredNode, NodePoint, names_of
from pybench.model.errors import UsageError
from pybench.model.record import Record
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.host_device_copy import HostDeviceCopy
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth

_MIN_SIZES = 2


def node_figures(node: MeasuredNode, dtype: str) -> NodeFigures:
    """Figures of the node, with products in ``dtype``. Raises ``UsageError`` when the run lacks the basic ones."""
    products = [p for p in node.points if isinstance(p.settings, Matmul) and p.settings.precision == dtype]
    memories = [p for p in node.points if isinstance(p.settings, MemoryBandwidth)]
    matmul = _best(products, "matmul_flops_per_s")
    memory = _best(memories, "memory_bytes_per_s")
    if matmul is None or memory is None:
        lacks = f"matmul in {dtype}" if matmul is None else "memory_bandwidth"
        raise UsageError(f"{node.run_id}: it measured no {lacks}; give a run of node_check on this machine")
    flops, moved = (matmul.by_gpu.get("matmul_flops_per_s", {}), memory.by_gpu.get("memory_bytes_per_s", {}))
    curves = _collectives(node)
    return NodeFigures(
        matmul_flops_per_s=_slowest(matmul, "matmul_flops_per_s"),
        memory_bytes_per_s=_slowest(memory, "memory_bytes_per_s"),
        peer_bytes_per_s=min(_values(node, "peer_copy_bytes_per_s"), default=None),
        to_host_bytes_per_s=_host_copy(node, "d2h"),
        from_host_bytes_per_s=_host_copy(node, "h2d"),
        # Of the fastest point on GPUs.
        launch_s=min(_values(node, "launch_s"), default=None),
        gpus={
            name: GpuFigures(matmul_flops_per_s=flops[name], memory_bytes_per_s=moved[name])
            for name in flops
            if name in moved
        },
        collectives=curves.pop(1, {}),
        between_nodes=curves,
    )


def gpu_names(records: Sequence[Record]) -> tuple[str, ...]:
    """The GPUs that the attempts ran on: by UUID, on CPUs by rank."""
    ranks = (rank for record in records for rank in record.ranks)
    return tuple(dict.fromkeys(name for rank in ranks for name in names_of(rank)))


def _values(node: MeasuredNode, metric: str) -> Iterator[float]:
    return (point.values[metric] for point in node.points if metric in point.values)


def _host_copy(node: MeasuredNode, direction: str) -> float | None:
    """The most that the slowest GPU reached in one direction."""
    copies = (p for p in node.points if isinstance(p.settings, HostDeviceCopy) and p.settings.direction == direction)
    found = (copy.values["host_copy_bytes_per_s"] for copy in copies if "host_copy_bytes_per_s" in copy.values)
    return max(found, default=None)


def _best(points: Sequence[NodePoint], metric: str) -> NodePoint | None:
    """Of the points that saw the most GPUs the one whose slowest reached the most."""
    measured = [point for point in points if metric in point.values]
    return max(measured, key=lambda point: (point.settings.gpus, _slowest(point, metric)), default=None)


def _slowest(point: NodePoint, metric: str) -> float:
    """What its slowest GPU reached."""
    return min(point.by_gpu.get(metric, {}).values(), default=point.values[metric])


def _collectives(node: MeasuredNode) -> dict[int, dict[tuple[str, int], AlphaBeta]]:
    """By number of nodes: a fit for each operation and count that was measured at two sizes or more."""
    curves: dict[tuple[int, str, int], dict[int, float]] = {}
    for point in node.points:
        own = point.settings
        # A rail joins a part of the GPUs.
        if isinstance(own, Collective) and own.groups == "all" and "collective_s" in point.values:
            key = own.num_nodes, own.operation, own.gpus
            curves.setdefault(key, {})[own.message_bytes] = point.values["collective_s"]
    fits: dict[int, dict[tuple[str, int], AlphaBeta]] = {}
    for (num_nodes, operation, count), curve in curves.items():
        if len(curve) >= _MIN_SIZES:
            fits.setdefault(num_nodes, {})[operation, count] = fit(list(curve.items()))
    return fits
