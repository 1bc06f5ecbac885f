"""A run's folder: the manifest, the journal of records, and a folder for each attempt.

::

    runs/20261121T081500Z-tp_scaling/
        manifest.json      what is measured, where; written once, with a checksum
        journal.jsonl      one Record a line with its place and checksum, fsync'd; survives SIGKILL
        worker/            the worker's source as it ran
        attempts/NAME.K/   trace.npz; of a process's first attempt also worker.log, and exchange/ with orders and events
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pybench.model.errors import RunFolderError, is_machine_fault
from pybench.model.manifest import MANIFEST_VERSION, Manifest
from pybench.model.record import Record
from pybench.store.journal_line import (
    MAX_LINE_BYTES,
    check_version,
    decode_line,
    encode_line,
    first_problem,
    is_whole,
    sequence_of,
)
from pybench.store.json_values import decode_json, has_too_many
from pybench.store.manifest_rules import breaches
from pybench.store.reader import Reader
from pybench.store.run_folder_error import AbsentError, run_folder_errors
from pybench.store.run_lock import writing
from pybench.store.safe_folder import (
    foreign_files,
    fresh_folder,
    opened_file,
    opened_folder,
    read_file,
    remove_file,
    write_all,
    write_file,
)

_MANIFEST = TypeAdapter(Manifest)
_MANIFEST_READER = Reader(_MANIFEST)
_MANIFEST_FILE, _JOURNAL_FILE = "manifest.json", "journal.jsonl"
# The first key of the manifest: a checksum of all that follows it.
_MANIFEST_HEAD = b'{\n "checksum": "%s",'
# Manifests of pybench's suites have some 50 kB, one of 4096 points some 16 MB; journals 0.5 MB.
_MAX_MANIFEST_BYTES = 2**26
_MAX_JOURNAL_BYTES = 2**28
_BLOCK_BYTES = 2**16
_LONGEST_NAME = 150


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self._num_records: int | None = None  # in the journal, once this process has read or written it

    @classmethod
    def create(cls, root: Path, suite_name: str, now: datetime | None = None) -> RunFolder:
        """Make ``root/<utc>-<suite>`` with an empty journal, and a counter when that second is taken.

        Raises ``RunFolderError``.
        """
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        for suffix in ("", *(f"-{n}" for n in range(2, 100))):
            path = root / f"{stamp}-{suite_name}{suffix}"
            try:
                path.mkdir(parents=True)
                (path / _JOURNAL_FILE).touch()
            except FileExistsError:
                continue
            except OSError as error:
                if is_machine_fault(error):
                    raise
                raise RunFolderError(
                    f"{path}: cannot create the run's folder: {error.strerror}; give another --runs"
                ) from error
            return cls(path.resolve())
        raise RunFolderError(f"{root}: a hundred runs of {suite_name} began in one second; wait, or use another --runs")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run. Raises ``RunFolderError`` when ``path`` is none."""
        with run_folder_errors(path, "look for a run"):
            found, is_there = (path / _MANIFEST_FILE).is_file(), path.exists()
        if not is_there:
            raise RunFolderError(f"{path}: there is no such folder; give a folder below runs/")
        if not found:
            raise RunFolderError(f"{path}: {_no_run(path)}")
        return cls(path.resolve())

    def require_owner(self) -> None:
        """Refuse to write into a folder that another user prepared. Raises ``RunFolderError``."""
        with run_folder_errors(self.path, "look for a run"):
            names = (_MANIFEST_FILE, _JOURNAL_FILE, "lock", "worker", "attempts", "reruns")
            foreign = next(foreign_files(self.path, names), None)
        if foreign is not None:
            raise RunFolderError(f"{foreign}: belongs to another user; start a new run instead")

    @property
    def mark(self) -> str:
        """What this run's processes and containers carry: its id, made unique by its place.

        Two runs of one suite may begin in one second, in different folders, and must not end each other's workers.
        """
        return f"{self.run_id}-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:8]}"

    @property
    def worker(self) -> Path:
        """Where the worker's source is staged."""
        return self.path / "worker"

    def fresh_attempt(self, point_id: str, number: int) -> Path:
        """Make an empty folder for an attempt; what an interrupted one left is removed. Raises ``RunFolderError``."""
        name = attempt_name(point_id, number)
        path = self.path / "attempts" / name
        with run_folder_errors(path, "create the attempt's folder"), opened_folder(self.path) as folder:
            with suppress(FileExistsError):
                os.mkdir("attempts", 0o755, dir_fd=folder)
            with opened_folder("attempts", folder) as attempts:
                fresh_folder(attempts, name)
        return path

    def subfolder(self, name: str) -> Path:
        """A folder inside, made where there is none. Raises ``RunFolderError``, also for a link of this name."""
        path = self.path / name
        with run_folder_errors(path, "make a folder in the run's"), opened_folder(self.path) as folder:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=folder)
            with opened_folder(name, folder):
                return path

    def lock(self) -> AbstractContextManager[None]:
        """Hold the run for one writer. Raises ``RunFolderError`` when another process has it, or nobody can."""
        return writing(self.path)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest whole or not at all. Raises ``RunFolderError``, also for one that would not be read back.

        Raises ``ValueError`` where a point would be read back as another one.
        """
        body = _MANIFEST.dump_json(manifest, indent=1)[1:] + b"\n"
        data = _MANIFEST_HEAD % _digest(body) + body
        if len(data) > _MAX_MANIFEST_BYTES or has_too_many(data):
            raise RunFolderError(f"{self.path}: its plan is larger than a manifest may be; run parts of the suite (-k)")
        try:
            values = decode_json(data)
        except ValueError as error:
            where = f"{self.path / _MANIFEST_FILE}: would not be read back: {error}"
            raise RunFolderError(f"{where}; change it in the suite or its table") from error
        if _MANIFEST_READER.read(values).plan.digests != manifest.plan.digests:
            raise ValueError(f"{self.path}: a point of the manifest would not be read back as it is")
        with run_folder_errors(self.path, "write the manifest"), opened_folder(self.path) as folder:
            write_file(folder, _MANIFEST_FILE, data)

    def read_manifest(self) -> Manifest:
        """Read the manifest. Raises ``RunFolderError`` when it is damaged or of another version."""
        path = self.path / _MANIFEST_FILE
        with run_folder_errors(path, "read the manifest"), opened_folder(self.path) as folder:
            data = read_file(folder, _MANIFEST_FILE, _MAX_MANIFEST_BYTES)
        try:
            values = decode_json(data)
        except ValueError as error:
            raise RunFolderError(f"{path}: {error}; the file was edited or damaged") from error
        check_version(f"{path}", values, MANIFEST_VERSION)
        head = len(_MANIFEST_HEAD % _digest(b""))
        if data[:head] != _MANIFEST_HEAD % _digest(data[head:]):
            raise RunFolderError(f"{path}: its checksum does not fit; the file was edited or damaged")
        try:
            manifest = _MANIFEST_READER.read(values)
        except ValidationError as error:
            raise RunFolderError(f"{path}: {first_problem(error)}") from error
        for key, fault in breaches(manifest):
            raise RunFolderError(f"{path}: {key}: {fault}; the file was edited or damaged")
        return manifest

    def append(self, record: Record) -> None:
        """Add ``record`` and return once it is on disk. Raises ``RunFolderError`` when it can't be written.

        What is left of a line that a crash cut short is overwritten.
        """
        with run_folder_errors(self.path, "write the journal"), opened_folder(self.path) as folder:
            with opened_file(folder, _JOURNAL_FILE, os.O_RDWR | os.O_CREAT) as file:
                end, last = _last_line(file)
                self._require_complete(last)
                line = encode_line(record, sequence_of(last) + 1)
                if end + len(line) > _MAX_JOURNAL_BYTES:
                    what = f"{self.path / _JOURNAL_FILE}: would be larger than {_MAX_JOURNAL_BYTES} bytes"
                    raise RunFolderError(f"{what}; measure the rest in a new run")
                os.ftruncate(file, end)
                os.lseek(file, end, os.SEEK_SET)
                write_all(file, line)
                os.fsync(file)
            if not end:
                os.fsync(folder)
        self._num_records = sequence_of(line)

    def require_complete(self) -> None:
        """Refuse a journal that lost records while this process wrote it. Raises ``RunFolderError``."""
        with (
            run_folder_errors(self.path / _JOURNAL_FILE, "read the journal"),
            opened_folder(self.path) as folder,
            opened_file(folder, _JOURNAL_FILE) as file,
        ):
            self._require_complete(_last_line(file)[1])

    def records(self) -> tuple[Record, ...]:
        """Read every record. A last line cut short by a crash is left out; other damage raises ``RunFolderError``."""
        path = self.path / _JOURNAL_FILE
        try:
            with run_folder_errors(path, "read the journal"), opened_folder(self.path) as folder:
                data = read_file(folder, _JOURNAL_FILE, _MAX_JOURNAL_BYTES)
        except AbsentError:
            raise RunFolderError(f"{path}: not there, and every run has one; get the folder again") from None
        end = data.rfind(b"\n") + 1
        if is_whole(data[end:-1]):
            number = data.count(b"\n") + 1
            raise RunFolderError(f"{path}:{number}: does not end its line; the journal was edited or damaged")
        records = tuple(decode_line(path, number, line) for number, line in enumerate(_lines(data, end), start=1))
        _refuse_twins(path, records)
        self._num_records = len(records)
        return records

    def _require_complete(self, last_line: bytes) -> None:
        found = sequence_of(last_line)
        if self._num_records is not None and found != self._num_records:
            raise RunFolderError(
                f"{self.path / _JOURNAL_FILE}: ends with record {found}, {self._num_records} were written; "
                "something else changed it; start a new run"
            )

    def write_report(self, file: str, text: str) -> None:
        """Write a report into the run's folder. Raises ``RunFolderError``; nothing measured is lost by that."""
        remedy = "; `pybench report` prints it again"
        with (
            run_folder_errors(self.path / file, "write the report", remedy),
            opened_folder(self.path) as folder,
        ):
            write_file(folder, file, text.encode())

    def remove_reports(self, files: Iterable[str]) -> None:
        """Remove reports that no longer follow from the journal. Raises ``RunFolderError``."""
        with run_folder_errors(self.path, "remove reports of before"), opened_folder(self.path) as folder:
            for file in files:
                remove_file(folder, file)


def attempt_name(point_id: str, number: int) -> str:
    """Name of the folder of one attempt, e.g. ``decode_tensor_parallel=2.1``."""
    # Brackets are awkward in a shell; other characters come from the values of variables, as do long names.
    name = re.sub(r"[^A-Za-z0-9=,._-]+", "_", point_id).strip("_")
    if len(name) > _LONGEST_NAME or re.search(r"[^A-Za-z0-9=,._\-\[\]]", point_id):
        name = f"{name[:_LONGEST_NAME]}_{hashlib.sha256(point_id.encode()).hexdigest()[:8]}"
    return f"{name}.{number}"


def _no_run(path: Path) -> str:
    """Why a path is no run, and what to give."""
    if not path.is_dir():
        return "neither a run's folder nor a results.json; give one of them"
    runs = [found.parent.name for found in path.glob(f"*/{_MANIFEST_FILE}")]
    if runs:
        return f"a folder of runs; give one of them, such as the newest, {max(runs)}"
    if next(path.glob("*.json"), None) is not None:
        return f"no run here (no {_MANIFEST_FILE}); give one of its .json files, or a run's folder"
    return f"no run here (no {_MANIFEST_FILE}); give a folder below runs/"


def _lines(data: bytes, end: int) -> Iterator[bytes]:
    """Each line before ``end``, without its newline: all together would be a list as long as a file of newlines."""
    start = 0
    while start < end:
        stop = data.index(b"\n", start)
        yield data[start:stop]
        start = stop + 1


def _last_line(file: int) -> tuple[int, bytes]:
    """Where the last whole line of a file ends, and the line; what follows it was cut short by a crash.

    Raises ``OSError`` where both are longer than any line.
    """
    size = os.fstat(file).st_size
    tail, start = b"", size
    while start and tail.count(b"\n") < 2:  # noqa: PLR2004 - the newline before the line, and its own
        if len(tail) > 2 * MAX_LINE_BYTES:
            raise OSError(errno.EOVERFLOW, f"A line of more than {MAX_LINE_BYTES} bytes", _JOURNAL_FILE)
        # As much again as is read: block by block, a long line would be copied for each.
        length = min(max(_BLOCK_BYTES, len(tail)), start)
        start -= length
        tail = os.pread(file, length, start) + tail
    end = start + tail.rfind(b"\n") + 1
    return end, tail[: end - start].rpartition(b"\n")[0].rpartition(b"\n")[2]


def _refuse_twins(path: Path, records: Sequence[Record]) -> None:
    """An attempt is recorded once. Raises ``RunFolderError``."""
    seen: dict[tuple[str, int], int] = {}
    for number, record in enumerate(records, start=1):
        first = seen.setdefault((record.point_id, record.attempt), number)
        if first != number:
            raise RunFolderError(
                f"{path}:{number}: attempt {record.attempt} at {record.point_id} is on line {first} too"
            )


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()
