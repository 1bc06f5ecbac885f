"""Runs of the nodes of a fleet, from folders that somebody collected.

A path is a run's folder, a ``results.json`` or ``NODE.json``, or a folder of those, three levels deep. The node of a
run is the last part of its path that is neither a run's name nor ``runs`` or ``results``; ``NODE=PATH`` names it. Links
are not followed. A folder of a run's name that holds no run is one that cannot be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.files.run.errors import DEFECTS
from pybench.files.run.folder import RunFolder
from pybench.files.run.results_file import read_results
from pybench.fleet.node_run import gpu_figures, node_run, pair_figures
from pybench.fleet.values import NodeRun, PairFigure
from pybench.model.errors import PybenchError, RunFolderError
from pybench.model.manifest import MANIFEST_FILE
from pybench.model.results import RESULTS_FILE

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""What a scheduler takes as a node's name."""
_NAMED = re.compile(rf"({NODE_NAME.pattern})=(.+)", re.DOTALL)
_RUN_NAME = re.compile(r"\d{8}T\d{6}Z-.*")
_OF_NO_NODE = re.compile(rf"{_RUN_NAME.pattern}|runs|results|\.{{0,2}}|/")
_MOST_LEVELS = 3
_MOST_LINES = 5


class _NamelessError(RunFolderError):
    """A run of one node, of which its path has no name."""


@dataclass(frozen=True, kw_only=True)
class CollectedRuns:
    """Runs of single nodes, pairs of runs over two; nodes whose runs are unreadable, with the reason.

    ``nameless`` are the runs of single nodes whose path names none, ``notes`` what else was left out.
    """

    runs: tuple[NodeRun, ...] = ()
    pairs: tuple[PairFigure, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    nameless: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _PairRun:
    """A run over several hosts. Two of one id may have begun in the same second, on other hosts."""

    identity: tuple[str, ...]
    pairs: tuple[PairFigure, ...]


def read_fleet(given: Sequence[str], apart: Collection[Path] = ()) -> CollectedRuns:
    """Read every run below the paths, but files ``apart``. Raises ``RunFolderError`` where nothing can be read."""
    runs: list[NodeRun] = []
    refused: list[tuple[str | None, str]] = []
    nameless: list[str] = []
    pair_runs: dict[tuple[str, ...], _PairRun] = {}
    notes: list[str] = []
    for text in given:
        name, path = _name_and_path(text)
        for place in _places(path):
            if any(place.exists() and place.samefile(file) for file in apart if file.exists()):
                continue
            node = name or _node_of(place)
            try:
                read = _read(node, place)
                if isinstance(read, NodeRun):
                    runs.append(read)
                elif pair_runs.setdefault(read.identity, read) is not read:
                    notes.append(f"pairs: run {read.identity[0]} was given twice; it counts once")
            except _NamelessError as error:
                nameless.append(str(error))
            except PybenchError as error:
                refused.append((node, str(error).splitlines()[0]))
    if not runs and not pair_runs:
        raise RunFolderError(_lines((*nameless, *(reason for _, reason in refused))))
    unreadable, others = _by_node(refused)
    return CollectedRuns(
        runs=tuple(runs),
        pairs=tuple(pair for one in pair_runs.values() for pair in one.pairs),
        unreadable=unreadable,
        nameless=tuple(nameless),
        notes=(*notes, *others),
    )


def _by_node(refused: Sequence[tuple[str | None, str]]) -> tuple[dict[str, str], list[str]]:
    """The first reason of each node, and notes of the others."""
    unreadable: dict[str, str] = {}
    notes: list[str] = []
    for node, reason in refused:
        if node is None or node in unreadable:
            notes.append(f"not read: {reason}")
        else:
            unreadable[node] = reason
    return unreadable, notes


def require_names(found: CollectedRuns) -> None:
    """Raise ``RunFolderError`` for runs that would not be judged, since nobody knows of which node they are."""
    if found.nameless:
        raise RunFolderError(_lines(found.nameless))


def _lines(reasons: Sequence[str]) -> str:
    more = len(reasons) - _MOST_LINES
    return "\n".join((*reasons[:_MOST_LINES], *([f"and {more} more"] if more > 0 else [])))


def _name_and_path(text: str) -> tuple[str | None, Path]:
    named = None if os.path.lexists(text) else _NAMED.fullmatch(text)
    return (named[1], Path(named[2])) if named else (None, Path(text))


def _places(path: Path) -> Iterator[Path]:
    """Every run below a path. Raises ``RunFolderError`` where there is none."""
    if not os.path.lexists(path):
        raise RunFolderError(f"{path}: no such file or folder; give a run, a results.json or a folder of those")
    found = list(_runs_below(path, _MOST_LEVELS))
    if not found:
        raise RunFolderError(f"{path}: no run in it; give a run, a results.json or a folder of those")
    yield from found


def _runs_below(path: Path, levels: int) -> Iterator[Path]:
    if not path.is_dir() or os.path.lexists(path / MANIFEST_FILE):
        yield path
    elif os.path.lexists(path / RESULTS_FILE):
        yield path / RESULTS_FILE
    else:
        found = list(_runs_inside(path, levels - 1)) if levels else []
        if not found and _RUN_NAME.fullmatch(path.name):
            found = [path]
        yield from found


def _runs_inside(folder: Path, levels: int) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if not e.is_symlink() and (e.is_dir() or e.name.endswith(".json")))
    for name in names:
        if not name.startswith("."):
            yield from _runs_below(folder / name, levels)


def _node_of(place: Path) -> str | None:
    parts = [*place.parts[:-1], place.name.removesuffix(".json")]
    name = next((part for part in reversed(parts) if not _OF_NO_NODE.fullmatch(part)), None)
    return name if name is not None and NODE_NAME.fullmatch(name) else None


def _read(node: str | None, place: Path) -> NodeRun | _PairRun:
    """A run of one node, or over several. Raises ``RunFolderError``: a folder may hold anything."""
    try:
        if not place.is_dir():
            return node_run(_known(node, place), read_results(place))
        if not os.path.lexists(place / MANIFEST_FILE):
            raise RunFolderError(f"{place}: no {MANIFEST_FILE} in this run's folder")
        folder = RunFolder.open(place)
        manifest = folder.read_manifest()
        measurements = Measurements.of(manifest.plan, folder.journal.records())
        if manifest.machines:
            names = (host.name for host in manifest.machines)
            identity = (manifest.run_id, manifest.created_utc, *names)
            return _PairRun(identity=identity, pairs=_pairs(place, measurements))
        results = assemble(manifest, measurements)
        return node_run(_known(node, place), results, gpu_figures(measurements, manifest.machine))
    except PybenchError:
        raise
    except DEFECTS as error:
        raise RunFolderError(f"{place}: cannot be judged: {type(error).__name__}: {error}") from error


def _known(node: str | None, place: Path) -> str:
    if node is None:
        raise _NamelessError(f"{place}: its path names no node; give NODE={place}")
    return node


def _pairs(place: Path, measurements: Measurements) -> tuple[PairFigure, ...]:
    found = pair_figures(measurements)
    if not found:
        raise RunFolderError(f"{place}: a run over several hosts without a point on two of them; give runs of one host")
    if odd := [name for pair in found for name in pair.nodes if not NODE_NAME.fullmatch(name)]:
        raise RunFolderError(f"{place}: {odd[0]!r} is no name of a node; set PYBENCH_HOST_NAME there")
    return found
