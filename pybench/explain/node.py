"""Rates of a node, from a run of its check: by its records, or by its results alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements, grouped
from pybench.core.numbers import quantity_with_interval, spread
from pybench.core.provenance import worker_packages
from pybench.core.statistics.interval import location
from pybench.core.verdict import ONE_ATTEMPT
from pybench.explain.step_time import MIN_SIZES, AlphaBeta, NodeRates, fit
from pybench.files.reader import DAMAGED, first_fault
from pybench.files.run.folder import RunFolder, earlier_runs
from pybench.files.run.results_file import read_results
from pybench.files.suite.schema import fields_of
from pybench.model.errors import RunFolderError, UsageError
from pybench.model.manifest import Manifest
from pybench.model.record import RankReport, Record
from pybench.model.results import Results
from pybench.model.suite import Point
from pybench.model.text import abridged, plural
from pybench.model.verdict import Verdict
from pybench.model.workloads.node import Collective, Matmul, MemoryBandwidth, PeerCopy
from pybench.model.workloads.registry import METRICS_OF, NODE_WORKLOADS, SETTINGS_OF, setting_names
from pybench.model.workloads.settings import LARGEST, NodeSettings, Settings, WorkloadName

# Metrics that each rank reports in every step, so that records have a figure of each GPU.
_OF_EACH_GPU = ("matmul_flops_per_s", "memory_bytes_per_s")
_ON_GPUS = "launch_s"
NODE_METRICS = (*_OF_EACH_GPU, "peer_copy_bytes_per_s", "collective_s", _ON_GPUS)
"""The metrics that predictions are made from."""


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
    """A node's run on ``machine``, a kind of GPU. ``has_each_gpu`` is False for results, which have the slowest GPU's.

    ``verdict`` is its run's, ``doubts`` are sentences about weaknesses of its figures.
    """

    run_id: str
    machine: str
    fingerprint: str
    packages: Mapping[str, str]
    environment: Mapping[str, str]
    points: tuple[NodePoint, ...]
    has_each_gpu: bool
    verdict: Verdict = "no_expectation"
    doubts: tuple[str, ...] = ()

    @classmethod
    def of_run(cls, manifest: Manifest, measurements: Measurements) -> MeasuredNode:
        """From the records of a run."""
        return cls(
            run_id=manifest.run_id,
            machine=manifest.machine.kind,
            fingerprint=manifest.fingerprint,
            packages=worker_packages(measurements.records),
            environment=manifest.environment,
            points=tuple(_of_records(measurements)),
            has_each_gpu=True,
        )


def _of_records(measurements: Measurements) -> Iterator[NodePoint]:
    for point in measurements.plan.points:
        if isinstance(point.settings, NodeSettings):
            ranks = [rank for record in measurements.good(point.id) for rank in record.ranks]
            values = {name: location(v) for name, v in measurements.samples(point).items() if name in NODE_METRICS}
            if not all(rank.header.device == "cuda" for rank in ranks):
                values.pop(_ON_GPUS, None)  # a CPU launches nothing
            by_gpu: dict[str, dict[str, float]] = {}
            for metric in values.keys() & _OF_EACH_GPU:
                reported = ((rank, [step.values[metric] for step in rank.steps]) for rank in ranks)
                of_gpus = grouped((name, steps) for rank, steps in reported for name in _names_of(rank))
                by_gpu[metric] = {name: location(steps) for name, steps in of_gpus.items()}
            yield NodePoint(settings=point.settings, values=values, by_gpu=by_gpu)


def _names_of(rank: RankReport) -> tuple[str, ...]:
    """The GPUs of a rank: by UUID, on CPUs by rank."""
    return rank.header.all_uuids or (f"rank {rank.header.rank}",)


def gpu_names(records: Sequence[Record]) -> tuple[str, ...]:
    """The GPUs of the attempts by UUID, on CPUs by rank."""
    return tuple(dict.fromkeys(name for record in records for rank in record.ranks for name in _names_of(rank)))


def node_rates(node: MeasuredNode, dtype: str) -> NodeRates:
    """Rates of the node, with products in ``dtype``. Raises ``UsageError`` when the run lacks products or memory."""

    def best(kind: type[NodeSettings], metric: str) -> NodePoint | None:
        """The point on the most GPUs; among equals, the one whose slowest GPU is fastest."""
        measured = (p for p in node.points if isinstance(p.settings, kind) and metric in p.values)
        points = [p for p in measured if not isinstance(p.settings, Matmul) or p.settings.precision == dtype]
        return max(points, key=lambda point: (point.settings.gpus, point.slowest(metric)), default=None)

    def values(metric: str) -> Iterator[float]:
        return (point.values[metric] for point in node.points if metric in point.values)

    matmul, memory = best(Matmul, "matmul_flops_per_s"), best(MemoryBandwidth, "memory_bytes_per_s")
    if matmul is None or memory is None:
        lacks = f"matmul in {dtype}" if matmul is None else "memory_bandwidth"
        raise UsageError(f"{node.run_id}: it measured no {lacks}; give a run of node_check on this machine")
    flops, moved = matmul.by_gpu.get("matmul_flops_per_s", {}), memory.by_gpu.get("memory_bytes_per_s", {})
    curves = _collectives(node)
    return NodeRates(
        matmul_flops_per_s=matmul.slowest("matmul_flops_per_s"),
        memory_bytes_per_s=memory.slowest("memory_bytes_per_s"),
        peer_bytes_per_s=min(values("peer_copy_bytes_per_s"), default=None),
        launch_s=min(values("launch_s"), default=None),
        gpus={name: (flops[name], moved[name]) for name in flops.keys() & moved.keys()},
        collectives=curves.pop(1, {}),
        between_nodes=curves,
    )


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
        if len(curve) >= MIN_SIZES:
            fits.setdefault(num_nodes, {})[operation, count] = fit(list(curve.items()))
    return fits


_MOST_RUNS = 200
"""Runs in the same folder that are searched, the newest first."""
_WIDE = 0.05
"""Half of an interval over the value; most predictions have a smaller error."""
_MOST_NAMED = 3


def measured_node(path: Path, machine: str | None = None) -> MeasuredNode:
    """The node's run of a folder or of a file. Raises ``RunFolderError``, and ``UsageError`` if not on ``machine``."""
    if path.suffix == ".json" and not path.is_dir():
        results = read_results(path)
        node = MeasuredNode(
            run_id=results.run_id,
            machine=results.machine,
            fingerprint=results.fingerprint,
            packages=results.provenance.packages,
            environment=results.provenance.environment or {},
            points=tuple(_of_results(path, results)),
            has_each_gpu=False,
        )
    else:
        manifest, measurements = RunFolder.open(path).read()
        node, results = MeasuredNode.of_run(manifest, measurements), assemble(manifest, measurements)
    if machine not in {None, node.machine}:
        other = f"measured on {node.machine}, whose rates predict nothing of a run on {machine}"
        raise UsageError(f"{path}: {other}; give a run of node_check on {machine}, or leave out --node")
    if machine is not None and not node.points:
        raise UsageError(f"{path}: it measured no rates of a node; give a run of node_check on {machine}")
    return replace(node, verdict=results.verdict, doubts=tuple(node_doubts(results)))


def latest_node_run(run: Path, fingerprint: str) -> Path:
    """The latest other run in the folder of ``run`` that measured a machine of the same fingerprint.

    Those with the rates of a model's step come first: products, and collectives of two sizes. A quick check has one.
    Raises ``RunFolderError`` if there is none.
    """
    path = run.resolve()
    others = [
        (not has_rates(manifest.plan.points), other)
        for other, manifest in earlier_runs(path.parent, fingerprint, most=_MOST_RUNS, current=path)
        if any(isinstance(point.settings, Matmul) for point in manifest.plan.points)
    ]
    for _, other in sorted(others, key=lambda other: other[0]):
        with suppress(RunFolderError):  # an interrupted run measured less than its plan
            points = MeasuredNode.of_run(*other.read()).points
            if {"matmul", "memory_bandwidth"} <= {point.settings.workload for point in points if point.values}:
                return other.path
    raise RunFolderError(
        f"{path.parent}: no run of node_check on the machine of {run.name}; make one with: pybench run "
        f"node_check --runs {shlex.quote(str(path.parent))}, or name one with --node"
    )


def has_rates(points: Sequence[Point]) -> bool:
    """Whether a run of these points measures products, and collectives of two sizes: they predict a model's step."""
    return {"matmul", "collective"} <= {name for name, *_ in rates_of(point.settings for point in points)}


def rates_of(settings: Iterable[Settings]) -> set[tuple[str | int, ...]]:
    """What predictions take from points with these settings: the name of each rate, and its number of GPUs."""
    rates: set[tuple[str | int, ...]] = set()
    sizes: dict[tuple[str | int, ...], set[int]] = {}
    for each in settings:
        if isinstance(each, Collective) and each.groups == "all":
            sizes.setdefault((each.workload, each.operation, each.gpus, each.num_nodes), set()).add(each.message_bytes)
        elif isinstance(each, Matmul):
            rates.add((each.workload, each.gpus, each.precision))
        elif isinstance(each, MemoryBandwidth | PeerCopy):
            rates.add((each.workload, each.gpus))
    return rates | {rate for rate, of_rate in sizes.items() if len(of_rate) >= MIN_SIZES}


def run_with_rates(root: Path, fingerprint: str, points: Sequence[Point]) -> str | None:
    """The latest run below ``root``, on a machine of this fingerprint, that measured every rate that ``points`` give.

    A fault of today slows rates of today, too: predictions from them would hide it. Runs that found a fault are passed
    over.
    """
    wanted = rates_of(point.settings for point in points)
    for other, manifest in earlier_runs(root, fingerprint, most=_MOST_RUNS):
        if wanted <= rates_of(point.settings for point in manifest.plan.points):
            node = measured_node(other.path)
            measured = rates_of(point.settings for point in node.points if point.values)
            if wanted <= measured and node.verdict not in {"fail", "error"}:
                return manifest.run_id
    return None


def _of_results(path: Path, results: Results) -> Iterator[NodePoint]:
    """Points that measured the node, their settings and figures checked."""
    measured = [(number, point) for number, point in enumerate(results.points) if point.status == "ok"]
    if measured and not any(point.settings for _, point in measured):
        raise RunFolderError(
            f"{path}: its points lack settings, which predictions need; write it again with:  "
            "pybench report RUN --format json -o FILE"
        )
    for number, point in measured:
        if point.settings.get("workload") not in NODE_WORKLOADS:
            continue
        place, workload = f"{path}: points.{number}", cast("WorkloadName", point.settings["workload"])
        # ``None`` is the default of every setting that may have it.
        given = {name: value for name, value in point.settings.items() if name != "workload" and value is not None}
        try:
            _model(workload).model_validate(given)
        except ValidationError as error:
            raise RunFolderError(f"{place}.settings.{first_fault(error)}; {DAMAGED}") from error
        values = {name: point.metrics[name].value for name in NODE_METRICS if name in point.metrics}
        for name, value in values.items():
            metric = METRICS_OF[workload].get(name)
            if metric is None or point.metrics[name].unit != metric.unit:
                raise RunFolderError(f"{place}.metrics.{name}: no metric of {workload} in that unit; {DAMAGED}")
            if value < 1 / LARGEST:
                raise RunFolderError(f"{place}.metrics.{name}.value: smaller than any measurement; {DAMAGED}")
        if not results.provenance.gpu_names:
            values.pop(_ON_GPUS, None)
        settings = SETTINGS_OF[workload](**given)
        assert isinstance(settings, NodeSettings), "of NODE_WORKLOADS"
        yield NodePoint(settings=settings, values=values)


@cache
def _model(workload: WorkloadName) -> type[BaseModel]:
    """A checker of the settings in a file, which may omit defaults."""
    kind = SETTINGS_OF[workload]
    needed = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
    types = ((name, note) for name, note in fields_of(kind).items() if name in setting_names(workload))
    wanted: dict[str, Any] = {name: (note, ... if name in needed else Field(default=None)) for name, note in types}
    return create_model(workload, __config__=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False), **wanted)


def node_doubts(results: Results) -> Iterator[str]:
    """Sentences about its verdict, wide intervals, and points measured once, which have no interval."""
    if results.verdict not in {"pass", "no_expectation"}:
        yield f"the node's run has the verdict {results.verdict}: {results.reason}"
    metrics = ((point.id, *metric) for point in results.points for metric in point.metrics.items())
    figures = [(point_id, name, estimate) for point_id, name, estimate in metrics if name in NODE_METRICS]
    wide = [
        f"{name} of {point_id} {quantity_with_interval(estimate)}"
        for point_id, name, estimate in figures
        if (spread(estimate.value, estimate.low, estimate.high) or 0.0) > _WIDE * abs(estimate.value)
    ]
    if wide:
        yield f"figures of the node's run have wide intervals, and so have predictions: {abridged(wide, _MOST_NAMED)}"
    points = {point_id for point_id, *_ in figures}
    once = {point_id for point_id, _, estimate in figures if estimate.low is None}
    if once and ONE_ATTEMPT not in results.reason:
        of_all = "its points" if once == points else f"{len(once)} of its {plural(len(points), 'point')}"
        yield f"the node's run measured {of_all} once: how far these figures scatter is not known"
