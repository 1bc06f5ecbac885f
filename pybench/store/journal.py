"""A run's folder: the manifest, the journal of records, and a folder for each attempt.

::

    runs/20261121T081500Z-tp_scaling/
        manifest.json      what was asked, where; written once
        journal.jsonl      one Record a line, fsync'd; survives SIGKILL
        worker/            the worker's source as it ran
        attempts/NAME.K/   trace.npz; of a process's first attempt also worker.log, and exchange/ with orders and events
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pybench.model.errors import RunFolderError, is_disk_full
from pybench.model.manifest import MANIFEST_VERSION, Manifest
from pybench.model.record import RECORD_VERSION, Record

_MANIFEST = TypeAdapter(Manifest)
_RECORD = TypeAdapter(Record)


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name

    @classmethod
    def create(cls, root: Path, suite_name: str, now: datetime | None = None) -> RunFolder:
        """Make ``root/<utc>-<suite>``, with a counter when that second is taken. Raises ``RunFolderError``."""
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        for suffix in ("", *(f"-{n}" for n in range(2, 100))):
            path = root / f"{stamp}-{suite_name}{suffix}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                if is_disk_full(error):
                    raise
                raise RunFolderError(f"{path}: cannot create the run's folder: {error.strerror}") from error
            return cls(path.resolve())
        raise RunFolderError(f"{root}: a hundred runs of {suite_name} began in one second; wait, or use another --runs")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run. Raises ``RunFolderError`` when ``path`` is none."""
        with _os_error_as_run_folder_error(path, "look for a run"):
            found = (path / "manifest.json").is_file()
        if not found:
            raise RunFolderError(f"{path}: no run here (no manifest.json); give a folder below runs/")
        return cls(path.resolve())

    @property
    def mark(self) -> str:
        """What this run's processes and containers carry: its id, made unique by its place.

        Two runs of one suite may begin in one second, in different folders, and must not end each other's workers.
        """
        return f"{self.run_id}-{hashlib.sha256(str(self.path).encode()).hexdigest()[:8]}"

    @property
    def worker(self) -> Path:
        """Where the worker's source is staged."""
        return self.path / "worker"

    def attempt(self, point_id: str, number: int) -> Path:
        """Folder of one attempt, made if need be. Raises ``RunFolderError``."""
        folder = self.path / "attempts" / attempt_name(point_id, number)
        with _os_error_as_run_folder_error(folder, "create the attempt's folder"):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for one writer. Raises ``RunFolderError`` when another process has it, or nobody can."""
        with ExitStack() as opened:
            with _os_error_as_run_folder_error(self.path, "lock the run"):
                stream = opened.enter_context((self.path / "lock").open("w"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"{self.path}: another pybench is writing this run; wait for it to end") from None
            yield

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest whole or not at all. Raises ``RunFolderError``."""
        scratch = self.path / "manifest.json.new"
        with _os_error_as_run_folder_error(self.path, "write the manifest"):
            with scratch.open("wb") as stream:
                stream.write(_MANIFEST.dump_json(manifest, indent=1) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            scratch.rename(self.path / "manifest.json")

    def read_manifest(self) -> Manifest:
        """Read the manifest. Raises ``RunFolderError`` when it is damaged or of another version."""
        path = self.path / "manifest.json"
        try:
            values = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise RunFolderError(f"{path}: not readable as JSON: {error}") from error
        _check_version(path, None, values, MANIFEST_VERSION)
        try:
            return _MANIFEST.validate_python(values)
        except ValidationError as error:
            raise RunFolderError(f"{path}: {_first(error)}") from error

    def append(self, record: Record) -> None:
        """Add ``record`` and return once it is on disk. Raises ``RunFolderError`` when it can't be written."""
        line = json.dumps(asdict(record), allow_nan=False).encode() + b"\n"
        with (
            _os_error_as_run_folder_error(self.path, "write the journal"),
            (self.path / "journal.jsonl").open("r+b" if self._journal_exists() else "w+b") as stream,
        ):
            stream.truncate(_whole_lines(stream.read()))
            stream.seek(0, os.SEEK_END)
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def records(self) -> tuple[Record, ...]:
        """Read every record. A last line cut short by a crash is left out; other damage raises ``RunFolderError``."""
        if not self._journal_exists():
            return ()
        path = self.path / "journal.jsonl"
        with _os_error_as_run_folder_error(path, "read the journal"):
            data = path.read_bytes()
        lines = data[: _whole_lines(data)].splitlines()
        return tuple(_read_record(path, number, line) for number, line in enumerate(lines, start=1))

    def write_report(self, file: str, text: str) -> None:
        """Write a report into the run's folder. Raises ``RunFolderError``; nothing measured is lost by that."""
        with _os_error_as_run_folder_error(self.path / file, "write the report", "; `pybench report` prints it again"):
            (self.path / file).write_text(text, encoding="utf-8")

    def _journal_exists(self) -> bool:
        return (self.path / "journal.jsonl").exists()


def attempt_name(point_id: str, number: int) -> str:
    """Name of the folder of one attempt, e.g. ``decode_tensor_parallel=2.1``."""
    # Point ids hold only letters, digits and []=,._- ; brackets are awkward in a shell and are replaced.
    name = re.sub(r"[^A-Za-z0-9=,._-]+", "_", point_id).strip("_")
    return f"{name}.{number}"


@contextmanager
def _os_error_as_run_folder_error(path: Path, doing: str, remedy: str = "") -> Iterator[None]:
    """Make what the system refuses a ``RunFolderError`` that says what could not be done, and what next.

    A full disk is the machine's trouble and stays an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise
        raise RunFolderError(f"{path}: cannot {doing}: {error.strerror}{remedy}") from error


def _whole_lines(data: bytes) -> int:
    """Length of ``data`` up to its last newline: what a crash in mid-write can't have touched."""
    return data.rfind(b"\n") + 1


def _read_record(path: Path, number: int, line: bytes) -> Record:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path}:{number}: not JSON: {error}; the journal was edited or damaged") from error
    _check_version(path, number, values, RECORD_VERSION)
    try:
        return _RECORD.validate_python(values)
    except ValidationError as error:
        raise RunFolderError(f"{path}:{number}: {_first(error)}") from error


def _check_version(path: Path, number: int | None, values: object, newest: int) -> None:
    where = f"{path}:{number}" if number else f"{path}"
    version = values.get("version") if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise RunFolderError(f"{where}: no version; not written by pybench")
    if version > newest:
        raise RunFolderError(f"{where}: from a newer pybench (version {version}, this one reads {newest}); update")
    if version < newest:
        raise RunFolderError(f"{where}: version {version} is too old for this pybench (reads {newest}); run it again")


def _first(error: ValidationError) -> str:
    detail = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    return f"{place}: {detail['msg']}; the file was edited or damaged"
