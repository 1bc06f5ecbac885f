"""What a node's run says for the model of step times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from pybench.compute.comm_model.alpha_beta import AlphaBeta, fit
from pybench.compute.comm_model.figures import NodeFigures
from pybench.compute.stats import location
from pybench.judge.summary import metric_samples
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest
from pybench.model.metrics.registry import METRICS_OF
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.peer_copy import PeerCopy

_MIN_SIZES = 2


def node_figures(manifest: Manifest, records: Sequence[Record], dtype: str) -> NodeFigures:
    """Figures of the node, with products in ``dtype``. Raises ``UsageError`` when the run lacks the basic ones."""
    matmuls = [
        (point, value)
        for point, value in _values(manifest, records, "matmul_flops_per_s")
        if isinstance(point.settings, Matmul) and point.settings.precision == dtype
    ]
    memory = [
        value
        for point, value in _values(manifest, records, "memory_bytes_per_s")
        if isinstance(point.settings, MemoryBandwidth)
    ]
    if not matmuls or not memory:
        lacks = f"matmul in {dtype}" if not matmuls else "memory_bandwidth"
        raise UsageError(f"{manifest.run_id}: it measured no {lacks}; give a run of node_check on this machine")
    best, flops = max(matmuls, key=lambda pair: pair[1])
    links = [
        value
        for point, value in _values(manifest, records, "peer_copy_bytes_per_s")
        if isinstance(point.settings, PeerCopy)
    ]
    return NodeFigures(
        matmul_flops_per_s=flops,
        memory_bytes_per_s=max(memory),
        peer_bytes_per_s=min(links, default=None),
        imbalance_fraction=_imbalance_fraction(best, records),
        collectives=_collectives(manifest, records),
    )


def _values(manifest: Manifest, records: Sequence[Record], metric: str) -> Iterator[tuple[Point, float]]:
    """Of the points whose workload has the metric and that were measured."""
    for point in manifest.plan.points:
        if metric in METRICS_OF[point.settings.workload] and (samples := metric_samples(point, records).get(metric)):
            yield point, location(samples)


def _collectives(manifest: Manifest, records: Sequence[Record]) -> dict[tuple[str, int], AlphaBeta]:
    """A fit for each operation and count that was measured at two sizes or more."""
    curves: dict[tuple[str, int], dict[int, float]] = {}
    for point, time_s in _values(manifest, records, "collective_s"):
        assert isinstance(point.settings, Collective), "no other workload has this metric"
        key = point.settings.operation, point.settings.gpus
        curves.setdefault(key, {})[point.settings.message_bytes] = time_s
    return {key: fit(list(curve.items())) for key, curve in curves.items() if len(curve) >= _MIN_SIZES}


def _imbalance_fraction(point: Point, records: Sequence[Record]) -> float:
    """How much longer the slowest rank takes for a product than the mean of all."""
    own = [record for record in records if record.point_id == point.id and record.ok]
    speeds = [
        fmean(step.values["matmul_flops_per_s"] for record in own for step in record.ranks[rank].steps)
        for rank in range(point.num_gpus)
    ]
    return fmean(speeds) / min(speeds) - 1
