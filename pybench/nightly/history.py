"""A folder of runs, read anew each time.

An entry of the folder is a run's folder, a folder with a ``results.json`` (as CI keeps it), or a file ``NAME.json``.
Links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pybench.files.reader import utc_time
from pybench.files.run.journal import DEFECTS
from pybench.model.errors import PybenchError, RunFolderError
from pybench.model.figures import RunFigures
from pybench.model.manifest import MANIFEST_FILE
from pybench.model.results import RESULTS_FILE

_MAX_REASON = 300
_OLD_INDEX = "index.jsonl"
"""Earlier builds kept figures in this file of the folder; it is ignored."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Runs by time, the oldest first. ``skipped`` are the entries that are no run, each with its reason.

    ``entries`` has the place of each run in the folder, by its identity.
    """

    folder: Path
    runs: tuple[RunFigures, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    entries: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def path(self, run: RunFigures) -> Path:
        """Where a run of the history is."""
        return self.folder / self.entries[run.identity]


def read_history(folder: Path) -> History:
    """Read every run of a folder. Raises ``RunFolderError`` where the folder cannot be read."""
    try:
        folder = folder.resolve()
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if not e.name.startswith(".") and e.name != _OLD_INDEX)
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot read the history: {error.strerror}; give a folder of runs") from error
    runs: dict[tuple[str, ...], RunFigures] = {}
    places: dict[tuple[str, ...], str] = {}
    skipped: list[tuple[str, str]] = []
    for name in names:
        run = _read_entry(folder, name)
        if isinstance(run, RunFigures):
            if run.identity in runs:
                run = f"the same run as another entry, {run.run_id}"
            else:
                runs[run.identity], places[run.identity] = run, name
        if isinstance(run, str):
            # An error of a file begins with its path, which the name already is.
            reason = run.removeprefix(str(folder / name)).lstrip("/: ")[:_MAX_REASON]
            skipped.append((name.encode(errors="backslashreplace").decode(), reason))
    ordered = sorted(runs.values(), key=lambda run: (run.created_utc, run.run_id))
    return History(folder=folder, runs=tuple(ordered), skipped=tuple(skipped), entries=places)


_SETTINGS: dict[str, dict[str, Any]] = {}
"""Settings of each point that was read, by its digest."""


def _read_entry(folder: Path, name: str) -> RunFigures | str | None:
    """The run of an entry, or the reason why it has none; ``None`` for an entry that is not about runs."""
    path = folder / name
    if path.is_symlink():
        return "a link; copy the run into the folder instead"
    if not _is_run(path):
        return "a folder of runs, which are not looked for in it; give that folder" if _holds_runs(path) else None
    if not _is_utf_8(name):
        return "its name is not UTF-8; give it another one"
    return _read_run(path)


def _is_run(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix == ".json"
    return any(os.path.lexists(path / file) for file in (MANIFEST_FILE, RESULTS_FILE))


def _holds_runs(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(_is_run(path / entry.name) for entry in entries if not entry.is_symlink())
    except OSError:
        return False


def _is_utf_8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_run(path: Path) -> RunFigures | str:
    """A folder may hold anything: whatever fails is a reason."""
    # Judging needs libraries that --help does not wait for.
    from pybench.core.keys import run_figures  # noqa: PLC0415
    from pybench.files.run.results_file import results_of  # noqa: PLC0415

    is_kept = path.is_dir() and not os.path.lexists(path / MANIFEST_FILE)
    try:
        run = run_figures(results_of(path / RESULTS_FILE if is_kept else path))
    except PybenchError as error:
        return str(error)
    except (*DEFECTS, MemoryError) as error:
        return f"cannot be judged: {type(error).__name__}: {error}"
    try:
        when = utc_time(run.created_utc).isoformat(timespec="seconds")
    except ValueError as error:
        return f"its time {error}"
    # Nights share the settings of a point, which its digest identifies.
    points = (
        p if p.digest is None else replace(p, settings=_SETTINGS.setdefault(p.digest, p.settings)) for p in run.points
    )
    return replace(run, created_utc=when, points=tuple(points))
