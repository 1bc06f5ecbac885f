"""Runs of the nodes of a fleet, from collected folders: figures of nodes and GPUs, failed checks, pairs.

A path is a run's folder, a ``results.json`` or ``NODE.json``, or a folder of those, three levels deep. The node of a
run is the last part of its path that is neither a run's name nor ``runs`` or ``results``; ``NODE=PATH`` names it. Links
are not followed. A folder with a run's name and no run in it is reported as unreadable.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from pybench.core.assemble import assemble
from pybench.core.keys import run_figures
from pybench.core.measurements import Measurements, grouped
from pybench.core.node_ranks import PointRecords
from pybench.files.run.folder import RunFolder
from pybench.files.run.journal import DEFECTS
from pybench.files.run.results_file import read_results
from pybench.fleet.values import NodeRun, PairFigure
from pybench.model.errors import PybenchError, RunFolderError
from pybench.model.figures import FigureKey
from pybench.model.machine import Machine
from pybench.model.manifest import MANIFEST_FILE
from pybench.model.results import RESULTS_FILE, NodeCheck, Results
from pybench.model.suite import Point
from pybench.model.workloads.node import Collective
from pybench.model.workloads.registry import SLOWER_FRACTIONS, TRAITS_OF

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""A node's name for a scheduler."""
_NAMED = re.compile(rf"({NODE_NAME.pattern})=(.+)", re.DOTALL)
_RUN_NAME = re.compile(r"\d{8}T\d{6}Z-.*")
_NO_NODE = re.compile(rf"{_RUN_NAME.pattern}|runs|results|\.{{0,2}}|/")
_MAX_LEVELS = 3
_MAX_LINES = 5


class _NamelessError(RunFolderError):
    """A run of one node whose path has no node name."""


@dataclass(frozen=True, kw_only=True)
class CollectedRuns:
    """Runs of single nodes, and pairs from runs over two nodes.

    ``unreadable`` are nodes with an unreadable run and the reason, ``nameless`` messages about runs without a node's
    name, ``notes`` what else was left out.
    """

    runs: tuple[NodeRun, ...] = ()
    pairs: tuple[PairFigure, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    nameless: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def require_names(self) -> None:
        """Raise ``RunFolderError`` for runs without a node name, which belong to no node."""
        if self.nameless:
            raise RunFolderError(_lines(self.nameless))


def read_fleet(given: Sequence[str]) -> CollectedRuns:
    """Read every run below the paths. Raises ``RunFolderError`` where nothing is readable."""
    runs: list[NodeRun] = []
    pair_runs: dict[tuple[str, ...], tuple[PairFigure, ...]] = {}
    unreadable: dict[str, str] = {}
    nameless: list[str] = []
    reasons: list[str] = []
    twice: list[str] = []
    unread: list[str] = []
    for text in given:
        named = None if os.path.lexists(text) else _NAMED.fullmatch(text)
        name, path = (named[1], Path(named[2])) if named else (None, Path(text))
        for place in _places(path):
            parts = [*place.parts[:-1], place.name.removesuffix(".json")]
            part = next((part for part in reversed(parts) if not _NO_NODE.fullmatch(part)), "")
            node = name or (part if NODE_NAME.fullmatch(part) else None)
            try:
                run = _read(node, place)
                if isinstance(run, NodeRun):
                    runs.append(run)
                elif run[0] in pair_runs:
                    twice.append(f"pairs: run {run[0][0]} was given twice; it counts once")
                else:
                    pair_runs[run[0]] = run[1]
            except _NamelessError as error:
                nameless.append(str(error))
            except PybenchError as error:
                reason = str(error).splitlines()[0]
                reasons.append(reason)
                if node is None or node in unreadable:
                    unread.append(f"not read: {reason}")
                else:
                    unreadable[node] = reason
    if not runs and not pair_runs:
        raise RunFolderError(_lines((*nameless, *reasons)))
    return CollectedRuns(
        runs=tuple(runs),
        pairs=tuple(pair for of_run in pair_runs.values() for pair in of_run),
        unreadable=unreadable,
        nameless=tuple(nameless),
        notes=(*twice, *unread),
    )


def _lines(reasons: Sequence[str]) -> str:
    more = len(reasons) - _MAX_LINES
    return "\n".join((*reasons[:_MAX_LINES], *([f"and {more} more"] if more > 0 else [])))


def _places(path: Path) -> list[Path]:
    """Every run below a path. Raises ``RunFolderError`` where there is none."""
    is_there = os.path.lexists(path)
    if not (places := list(_runs_below(path, _MAX_LEVELS)) if is_there else []):
        what = "no run in it" if is_there else "no such file or folder"
        raise RunFolderError(f"{path}: {what}; give a run, a results.json or a folder of those")
    return places


def _runs_below(path: Path, levels: int) -> Iterator[Path]:
    if not path.is_dir() or os.path.lexists(path / MANIFEST_FILE):
        yield path
    elif os.path.lexists(path / RESULTS_FILE):
        yield path / RESULTS_FILE
    else:
        places: list[Path] = []
        if levels:
            with os.scandir(path) as entries:
                inner = [e.name for e in entries if not e.is_symlink() and (e.is_dir() or e.name.endswith(".json"))]
            for name in sorted(name for name in inner if not name.startswith(".")):
                places += _runs_below(path / name, levels - 1)
        yield from places or ([path] if _RUN_NAME.fullmatch(path.name) else [])


def _read(node: str | None, place: Path) -> NodeRun | tuple[tuple[str, ...], tuple[PairFigure, ...]]:
    """A run of one node, or the identity and pairs of one over several. Raises ``RunFolderError``."""
    try:
        if not place.is_dir():
            return node_run(_named(node, place), read_results(place))
        if not os.path.lexists(place / MANIFEST_FILE):
            raise RunFolderError(f"{place}: no {MANIFEST_FILE} in this run's folder")
        manifest, measurements = RunFolder.open(place).read()
        if manifest.machines:
            # Runs of other hosts may have the same id, if they began in the same second.
            identity = (manifest.run_id, manifest.created_utc, *(host.name for host in manifest.machines))
            return identity, _pair_figures(place, measurements)
        results = assemble(manifest, measurements)
        return node_run(_named(node, place), results, gpu_figures(measurements, manifest.machine))
    except PybenchError:
        raise
    except DEFECTS as error:
        raise RunFolderError(f"{place}: cannot be judged: {type(error).__name__}: {error}") from error


def _named(node: str | None, place: Path) -> str:
    if node is None:
        raise _NamelessError(f"{place}: its path names no node; give NODE={place}")
    return node


def node_run(node: str, results: Results, gpus: dict[FigureKey, dict[str, tuple[float, ...]]] | None = None) -> NodeRun:
    """The run of a node. ``gpus`` are the figures of each GPU, which a ``results.json`` does not have."""
    figures = run_figures(results)
    # Nodes of one kind have equal names of GPUs, and different UUIDs.
    keys = {**figures.keys, "gpu": json.dumps(results.provenance.gpu_names)}
    watched = (check for check in results.node if check.point_id is None and check.verdict == "inconclusive")
    return NodeRun(
        node=node,
        figures=replace(figures, keys=keys),
        uuids=tuple(gpu.uuid for gpu in results.provenance.gpus),
        gpus=gpus or {},
        indices={gpu.uuid: gpu.index for gpu in results.provenance.gpus},
        states={point.id: point.gpu_states for point in results.points},
        faults=tuple(_faults(results)),
        warnings=tuple(map(_text, watched)),
    )


def _faults(results: Results) -> Iterator[str]:
    """Each failed check once for its subject, with the number of points; and missed limits of a table."""
    failed = grouped(((check.name, check.subject), check) for check in results.node if check.verdict == "fail")
    for checks in failed.values():
        yield f"{_text(checks[0])}{f', at {len(checks)} points' if len(checks) > 1 else ''}"
    for figure in results.checks:
        if figure.verdict == "fail":
            yield f"{figure.metric} at {figure.point_id}: {figure.reason}"


def _text(check: NodeCheck) -> str:
    name = "" if check.name in check.reason else f"{check.name}: "
    return f"{check.subject}: {name}{check.reason}"


def gpu_figures(measurements: Measurements, machine: Machine) -> dict[FigureKey, dict[str, tuple[float, ...]]]:
    """The median step of each attempt of every GPU by UUID, where each GPU works alone."""
    figures: dict[FigureKey, dict[str, tuple[float, ...]]] = {}
    for entry in measurements.entries:
        if not isinstance(entry, Point) or not (good := measurements.good(entry.id)):
            continue
        records = PointRecords(entry, good, machine)
        for metric in SLOWER_FRACTIONS:
            by_uuid = {
                uuid: tuple(median(steps) for steps in attempts)
                for rank, attempts in records.values(metric).items()
                if (uuid := records.uuid(rank)) is not None
            }
            if by_uuid:
                figures[FigureKey(entry.id, metric)] = by_uuid
    return figures


def _pair_figures(place: Path, measurements: Measurements) -> tuple[PairFigure, ...]:
    """The headline of each point on two nodes. Raises ``RunFolderError`` without such a point."""
    points = [entry for entry in measurements.entries if isinstance(entry, Point) and entry.settings.num_nodes == 2]  # noqa: PLR2004
    pairs = tuple(pair for point in points for pair in _pairs_of(point, measurements))
    if not pairs:
        raise RunFolderError(f"{place}: a run over several hosts without a point on two of them; give runs of one host")
    if unnamed := [name for pair in pairs for name in pair.nodes if not NODE_NAME.fullmatch(name)]:
        raise RunFolderError(f"{place}: {unnamed[0]!r} is no name of a node; set PYBENCH_HOST_NAME there")
    return pairs


def _pairs_of(point: Point, measurements: Measurements) -> Iterator[PairFigure]:
    metric = TRAITS_OF[point.settings.workload].headline
    on_rails = isinstance(point.settings, Collective) and point.settings.groups == "rails"
    values: dict[tuple[tuple[str, ...], int | None], list[float]] = {}
    for record, steps in zip(measurements.good(point.id), measurements.samples(point).get(metric, ()), strict=False):
        names = tuple(sorted({part.name for part in record.hosts}))
        if len(names) == 2:  # noqa: PLR2004 - a pair
            by_rail: dict[int | None, float] = {None: median(steps)} if len(steps) and not on_rails else {}
            each = len(record.ranks) // 2
            for number in range(each if on_rails else 0):  # the slower of its two GPUs counts
                of_ranks = ([step.values[metric] for step in record.ranks[r].steps] for r in (number, number + each))
                by_rail[number] = min(map(median, of_ranks))
            for rail, value in by_rail.items():
                if value > 0:
                    values.setdefault((names, rail), []).append(value)
    for (names, rail), measured in values.items():
        yield PairFigure(
            nodes=(names[0], names[1]),
            metric=metric,
            values=tuple(measured),
            message_bytes=getattr(point.settings, "message_bytes", None),
            rail=rail,
            work=point.id,
        )
