"""What a run of a node shows to the fleet: its figures, those of each GPU, and the checks of its own that failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from pybench.core.figures import run_figures
from pybench.core.measurements import Measurements
from pybench.core.node.ranks import PointRecords
from pybench.fleet.values import NodeRun, PairFigure
from pybench.model.figures import Row, RunFigures
from pybench.model.machine import Machine
from pybench.model.record import Record
from pybench.model.results import NodeCheck, Results
from pybench.model.suite import Point
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.registry import SLOWER_FRACTIONS, TRAITS_OF

_PAIR = 2


def node_run(node: str, results: Results, gpus: dict[Row, dict[str, tuple[float, ...]]] | None = None) -> NodeRun:
    """The run of a node. ``gpus`` are the figures of each GPU, which results alone do not have."""
    found = results.provenance.gpus
    return NodeRun(
        node=node,
        figures=_without_uuids(run_figures(results), results),
        uuids=tuple(gpu.uuid for gpu in found),
        gpus=gpus or {},
        indices={gpu.uuid: gpu.index for gpu in found},
        states={point.id: point.gpu_states for point in results.points},
        faults=tuple(_faults(results)),
        warnings=tuple(_text(one) for one in results.node if _is_warning(one)),
    )


def gpu_figures(measurements: Measurements, machine: Machine) -> dict[Row, dict[str, tuple[float, ...]]]:
    """The median step of each attempt of every GPU by UUID, where GPUs work each by itself."""
    found: dict[Row, dict[str, tuple[float, ...]]] = {}
    for entry in measurements.entries:
        if not isinstance(entry, Point) or not (good := measurements.good(entry.id)):
            continue
        records = PointRecords(entry, good, machine)
        for metric in SLOWER_FRACTIONS:
            own = {
                uuid: tuple(median(steps) for steps in attempts)
                for rank, attempts in records.values(metric).items()
                if (uuid := records.uuid(rank)) is not None
            }
            if own:
                found[Row(entry.id, metric)] = own
    return found


def pair_figures(measurements: Measurements) -> tuple[PairFigure, ...]:
    """What two nodes reached together, of a run over several: the headline of each point on two nodes."""
    points = [one for one in measurements.entries if isinstance(one, Point) and one.settings.num_nodes == _PAIR]
    return tuple(pair for point in points for pair in _pairs(point, measurements))


def _pairs(point: Point, measurements: Measurements) -> Iterator[PairFigure]:
    metric = TRAITS_OF[point.settings.workload].headline
    on_rails = isinstance(point.settings, Collective) and point.settings.groups == "rails"
    found: dict[tuple[tuple[str, ...], int | None], list[float]] = {}
    for record, steps in zip(measurements.good(point.id), measurements.samples(point).get(metric, ()), strict=False):
        names = tuple(sorted({part.name for part in record.hosts}))
        if len(names) != _PAIR:
            continue
        for rail, value in _rail_values(record, metric) if on_rails else ((None, median(steps)),) if len(steps) else ():
            if value > 0:
                found.setdefault((names, rail), []).append(value)
    for (names, rail), values in found.items():
        yield PairFigure(
            nodes=(names[0], names[1]),
            metric=metric,
            values=tuple(values),
            message_bytes=getattr(point.settings, "message_bytes", None),
            rail=rail,
            work=point.id,
        )


def _rail_values(record: Record, metric: str) -> Iterator[tuple[int, float]]:
    """The median step of each rail, on the slower of its two GPUs."""
    each = len(record.ranks) // _PAIR
    for rail in range(each):
        ends = (record.ranks[rail], record.ranks[rail + each])
        yield rail, min(median(step.values[metric] for step in rank.steps) for rank in ends)


def _without_uuids(figures: RunFigures, results: Results) -> RunFigures:
    """Nodes of one kind have equal names of GPUs, and as many of them."""
    return replace(figures, keys={**figures.keys, "gpu": json.dumps(results.provenance.gpu_names)})


def _faults(results: Results) -> Iterator[str]:
    """Each check once for what it is about, however many points show it."""
    found: dict[tuple[str, str], list[NodeCheck]] = {}
    for check in results.node:
        if check.verdict == "fail":
            found.setdefault((check.name, check.subject), []).append(check)
    for checks in found.values():
        points = f", at {len(checks)} points" if len(checks) > 1 else ""
        yield f"{_text(checks[0])}{points}"
    for figure in results.checks:
        if figure.verdict == "fail":
            yield f"{figure.metric} at {figure.point_id}: {figure.reason}"


def _text(check: NodeCheck) -> str:
    return (
        f"{check.subject}: {check.reason}"
        if check.name in check.reason
        else f"{check.subject}: {check.name}: {check.reason}"
    )


def _is_warning(check: NodeCheck) -> bool:
    """What the driver counted and no further attempt decides, such as corrected memory errors."""
    return check.point_id is None and check.verdict == "inconclusive"
