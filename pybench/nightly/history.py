"""A folder of runs, and the index that makes it fast to open.

An entry of the folder is a run's folder, a folder with a ``results.json`` (what CI keeps), or a file ``NAME.json``. The
index, ``index.jsonl`` in that folder, records of each entry the files with size, time and SHA-256, and the run's
figures or the reason why there are none. It may be deleted at any time. Links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pybench.files.run.errors import DEFECTS
from pybench.files.safe_folder import opened_folder, read_below, write_file
from pybench.files.utc_time import utc_time
from pybench.model.errors import PybenchError, RunFolderError
from pybench.model.figures import RunFigures
from pybench.model.manifest import MANIFEST_FILE
from pybench.model.record import JOURNAL_FILE
from pybench.model.results import RESULTS_FILE
from pybench.nightly.index import INDEX_FILE, Entry, decode_index, encode_index, source_of

_MAX_INDEX_BYTES = 2**28
_MAX_REASON = 300
_NESTED = "a folder of runs, which are not looked for in it; give that folder"


@dataclass(frozen=True, kw_only=True)
class History:
    """Runs by time, the oldest first. ``skipped`` has the entries that are no run, each with its reason.

    ``note`` is why the index could not be written, ``entries`` where in the folder each run is, by its identity.
    """

    folder: Path
    runs: tuple[RunFigures, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    note: str | None = None
    entries: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def path(self, run: RunFigures) -> Path:
        """Where a run of the history is."""
        return self.folder / self.entries[run.identity]


def read_history(folder: Path) -> History:
    """Read every run of a folder, and bring its index up to date. Raises ``RunFolderError`` where none is."""
    try:
        folder = folder.resolve()
        with os.scandir(folder) as found:
            names = sorted(entry.name for entry in found if not entry.name.startswith(".") and entry.name != INDEX_FILE)
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot read the history: {error.strerror}; give a folder of runs") from error
    known = _index(folder)
    entries = [entry for name in names if (entry := _entry(folder, name, known.get(name))) is not None]
    note = None if entries == [*known.values()] else _write(folder, entries)
    return _history(folder, entries, note)


def _index(folder: Path) -> dict[str, Entry]:
    try:
        return decode_index(read_below(folder, INDEX_FILE, _MAX_INDEX_BYTES))
    except OSError:
        return {}


def _write(folder: Path, entries: Sequence[Entry]) -> str | None:
    """Write the index; without it the next reading takes as long as this one, which is no error."""
    try:
        with opened_folder(folder) as opened:
            write_file(opened, INDEX_FILE, encode_index(entries))
    except (OSError, ValueError) as error:
        # A text that cannot be UTF-8, such as this folder's name in a reason, is a ``ValueError``.
        why = error.strerror if isinstance(error, OSError) else error
        return f"{folder / INDEX_FILE}: cannot write the index: {why}; the next reading takes as long"
    return None


def _entry(folder: Path, name: str, known: Entry | None) -> Entry | None:
    """An entry as the index has it, or as it is read now; ``None`` for what has nothing to do with runs."""
    # What the index has of a name, and a report prints.
    shown = name.encode(errors="backslashreplace").decode()
    if (folder / name).is_symlink():
        return Entry(name=shown, sources=(), reason="a link; copy the run into the folder instead")
    files = _files(folder, name)
    if not files:
        return Entry(name=shown, sources=(), reason=_NESTED) if _holds_runs(folder / name) else None
    if shown != name:
        return Entry(name=shown, sources=(), reason="its name is not UTF-8; give it another one")
    if known is not None and known.is_current(folder, files):
        return known
    try:
        # The files' state comes first: what is added meanwhile is then read the next time.
        sources = tuple(source_of(folder, file) for file in files)
    except OSError as error:
        return Entry(name=name, sources=(), reason=f"{error.filename or name}: cannot be read: {error.strerror}")
    return _read(folder / name, Entry(name=name, sources=sources))


def _files(folder: Path, name: str) -> list[str]:
    """Files that an entry's run is read from, of those that are there."""
    path = folder / name
    if not path.is_dir():
        return [name] if path.suffix == ".json" else []
    wanted = (MANIFEST_FILE, JOURNAL_FILE) if os.path.lexists(path / MANIFEST_FILE) else (RESULTS_FILE,)
    return [f"{name}/{file}" for file in wanted if os.path.lexists(path / file)]


def _holds_runs(folder: Path) -> bool:
    """Whether a folder looks like a history of its own."""
    try:
        with os.scandir(folder) as found:
            return any(_files(folder, entry.name) for entry in found if not entry.is_symlink())
    except OSError:
        return False


def _read(path: Path, entry: Entry) -> Entry:
    """The entry with its run, or with the reason why it has none: a folder may hold anything."""
    # Judging needs libraries that an index spares: a history that is only opened does not wait for them.
    from pybench.core.figures import run_figures  # noqa: PLC0415
    from pybench.files.run.results_file import results_of  # noqa: PLC0415

    is_kept = not path.is_dir() or not os.path.lexists(path / MANIFEST_FILE)
    try:
        found = run_figures(results_of(path / RESULTS_FILE if is_kept and path.is_dir() else path))
        when = _time(path, found.created_utc)
    except PybenchError as error:
        return replace(entry, reason=str(error)[:_MAX_REASON])
    except (*DEFECTS, MemoryError) as error:
        return replace(entry, reason=f"{path}: cannot be judged: {type(error).__name__}: {error}"[:_MAX_REASON])
    # Settings are for naming a difference between two runs; a digest stands for them here.
    points = tuple(replace(point, settings={}) for point in found.points)
    return replace(entry, run=replace(found, created_utc=when, points=points))


def _time(path: Path, text: str) -> str:
    """A time in one form, so that runs sort by it. Raises ``RunFolderError``."""
    try:
        return utc_time(text).isoformat(timespec="seconds")
    except ValueError as error:
        raise RunFolderError(f"{path}: its time {error}") from error


def _history(folder: Path, entries: Sequence[Entry], note: str | None) -> History:
    runs: dict[tuple[str, ...], RunFigures] = {}
    places: dict[tuple[str, ...], str] = {}
    skipped: list[tuple[str, str]] = []
    for entry in entries:
        if entry.run is None:
            # An error of a file begins with its path, which the name already is.
            skipped.append(
                (entry.name, (entry.reason or "no run").removeprefix(str(folder / entry.name)).lstrip("/: "))
            )
        elif entry.run.identity in runs:
            skipped.append((entry.name, f"the same run as another entry, {entry.run.run_id}"))
        else:
            runs[entry.run.identity] = entry.run
            places[entry.run.identity] = entry.name
    ordered = sorted(runs.values(), key=lambda run: (run.created_utc, run.run_id))
    return History(folder=folder, runs=tuple(ordered), skipped=tuple(skipped), note=note, entries=places)
