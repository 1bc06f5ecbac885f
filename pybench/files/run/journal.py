"""The journal of a run: its records one a line, each on disk before the next attempt begins; it survives SIGKILL.

A line has its place in the file and a checksum, so that damage is found::

    {"sequence": 3, "checksum": "0a1b2c3d4e5f6071", "record": {...}}

The checksum is the first 8 bytes of SHA-256 over the place and the record's own bytes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from pybench.files.reader import DAMAGED, Reader, decode_json, decode_versioned, has_too_many, utc_time
from pybench.files.safe_folder import opened_file, opened_folder, read_file, write_all
from pybench.model.errors import RunFolderError, fault_text, is_machine_fault
from pybench.model.record import JOURNAL_FILE, RECORD_VERSION, Record

DEFECTS = (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors of reading a folder that is no run of this pybench."""


class AbsentError(RunFolderError):
    """A file of the run's folder is not there."""


@contextmanager
def run_folder_errors(path: Path, doing: str, remedy: str = "") -> Iterator[None]:
    """Turn a system's error, but for a fault of the machine, into a ``RunFolderError`` with the file and next step."""
    try:
        yield
    except FileNotFoundError as error:
        raise AbsentError(f"{path}: cannot {doing}: {error.strerror}{remedy}") from error
    except OSError as error:
        if is_machine_fault(error):
            raise OSError(error.errno, f"cannot {doing}: {error.strerror}", str(path)) from error
        where = error.filename if str(error.filename).startswith(str(path)) else path
        text = f"{error.strerror}{remedy}" if remedy else fault_text(error)
        raise RunFolderError(f"{where}: cannot {doing}: {text}") from error


# Journals of pybench's suites have some 0.5 MB.
_MAX_BYTES = 2**28
_BLOCK_BYTES = 2**16


class Journal:
    """The journal in the run's folder at ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / JOURNAL_FILE
        self._num_records: int | None = None  # once this process has read or written it

    def append(self, record: Record) -> None:
        """Put ``record`` on disk, over a line that a crash cut short. Raises ``RunFolderError``."""
        with run_folder_errors(self._folder, "write the journal"), opened_folder(self._folder) as folder:
            with opened_file(folder, JOURNAL_FILE, os.O_RDWR | os.O_CREAT) as file:
                end, last = _last_line(file)
                self._require_complete(last)
                line = encode_line(record, sequence_of(last) + 1)
                if end + len(line) > _MAX_BYTES:
                    what = f"{self._path}: would be larger than {_MAX_BYTES} bytes"
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
            run_folder_errors(self._path, "read the journal"),
            opened_folder(self._folder) as folder,
            opened_file(folder, JOURNAL_FILE) as file,
        ):
            self._require_complete(_last_line(file)[1])

    def records(self) -> tuple[Record, ...]:
        """Read every record. A last line cut short by a crash is left out; other damage raises ``RunFolderError``."""
        try:
            with run_folder_errors(self._path, "read the journal"), opened_folder(self._folder) as folder:
                data = read_file(folder, JOURNAL_FILE, _MAX_BYTES)
        except AbsentError:
            raise RunFolderError(f"{self._path}: not there, and every run has one; get the folder again") from None
        end = data.rfind(b"\n") + 1
        if is_whole(data[end:-1]):
            number = data.count(b"\n") + 1
            raise RunFolderError(f"{self._path}:{number}: does not end its line; {_EDITED}")
        records = tuple(decode_line(self._path, number, line) for number, line in enumerate(_lines(data, end), start=1))
        seen: dict[tuple[str, int], int] = {}
        for number, record in enumerate(records, start=1):
            first = seen.setdefault((record.point_id, record.attempt), number)
            if first != number:
                raise RunFolderError(
                    f"{self._path}:{number}: attempt {record.attempt} at {record.point_id} is on line {first} too"
                )
        self._num_records = len(records)
        return records

    def _require_complete(self, last_line: bytes) -> None:
        sequence = sequence_of(last_line)
        if self._num_records is not None and sequence != self._num_records:
            raise RunFolderError(
                f"{self._path}: ends with record {sequence}, {self._num_records} were written; "
                "something else changed it; start a new run"
            )


def _lines(data: bytes, end: int) -> Iterator[bytes]:
    """Each line before ``end``, without its newline: all together would be a list as long as a file of newlines."""
    start = 0
    while start < end:
        stop = data.index(b"\n", start)
        yield data[start:stop]
        start = stop + 1


def _last_line(file: int) -> tuple[int, bytes]:
    """End of the last whole line, and the line; a crash cut short the rest. Raises ``OSError`` beyond a line."""
    size = os.fstat(file).st_size
    tail, start = b"", size
    while start and tail.count(b"\n") < 2:  # noqa: PLR2004 - the newline before the line, and its own
        if len(tail) > 2 * MAX_LINE_BYTES:
            raise OSError(errno.EOVERFLOW, f"A line of more than {MAX_LINE_BYTES} bytes", JOURNAL_FILE)
        # The block doubles: with equal blocks, a long line would be copied for each block.
        length = min(max(_BLOCK_BYTES, len(tail)), start)
        start -= length
        tail = os.pread(file, length, start) + tail
    end = start + tail.rfind(b"\n") + 1
    return end, tail[: end - start].rpartition(b"\n")[0].rpartition(b"\n")[2]


MAX_LINE_BYTES = 2**26
"""Over a hundred times the largest whole journal that suites of pybench have left."""
_RECORD = Reader(Record)
_MOST_SAMPLES = 2**24
_EDITED = "the journal was edited or damaged; get the run's folder again"
_HEAD = re.compile(rb'\{"sequence": ([1-9]\d{0,8}), "checksum": "([0-9a-f]{16})", "record": (?=\{)')


def encode_line(record: Record, sequence: int) -> bytes:
    """A line with its newline. Raises ``ValueError`` or ``RunFolderError`` if it can't be read back."""
    body = json.dumps(asdict(record), allow_nan=False).encode()
    line = b'{"sequence": %d, "checksum": "%s", "record": %s}\n' % (sequence, _checksum(sequence, body), body)
    if len(line) > MAX_LINE_BYTES or has_too_many(body):
        what = f"{record.point_id}: its record has {len(line)} bytes, more than a journal keeps of an attempt"
        raise RunFolderError(f"{what}; give it fewer steps, or fewer requests a step")
    if _RECORD.read(decode_json(body)) != record:
        raise ValueError(f"{record.point_id}: the record would not be read back as it is")
    return line


def sequence_of(line: bytes) -> int:
    """Place that a line states, 0 without one."""
    head = _HEAD.match(line)
    return int(head[1]) if head else 0


def is_whole(line: bytes) -> bool:
    """Whether a line without its newline is what was once written."""
    head = _HEAD.match(line)
    return head is not None and line.endswith(b"}") and _checksum(int(head[1]), line[head.end() : -1]) == head[2]


def decode_line(path: Path, number: int, line: bytes) -> Record:
    """Read line ``number`` of the journal at ``path``. Raises ``RunFolderError``, which names the line."""
    where, head = f"{path}:{number}", _HEAD.match(line)
    if len(line) > MAX_LINE_BYTES:
        raise RunFolderError(f"{where}: longer than {MAX_LINE_BYTES} bytes; {_EDITED}")
    if head is None:
        decode_versioned(where, line, RECORD_VERSION)
        raise RunFolderError(f"{where}: no checksum; {_EDITED}")
    if not is_whole(line):
        raise RunFolderError(f"{where}: its checksum does not fit; {_EDITED}")
    if int(head[1]) != number:
        raise RunFolderError(f"{where}: holds record {int(head[1])}; lines were added, removed or exchanged")
    record = _RECORD.read_of(where, decode_versioned(where, line[head.end() : -1], RECORD_VERSION))
    if fault := next(_faults(record), None):
        raise RunFolderError(f"{where}: {fault}; {DAMAGED}")
    return record


def _faults(record: Record) -> Iterator[str]:
    """Faults of a record that no attempt can cause, such as a time before an earlier one."""
    try:
        utc_time(record.started_utc)
    except ValueError as error:
        yield f"started_utc: {error}"
    if record.attempt < 1:
        yield f"attempt: {record.attempt} is no number of an attempt, which count from 1"
    yield from _faults_in_times(record)
    if record.ok:
        counts = [len(rank.steps) for rank in record.ranks]
        if not counts:
            yield "ranks: none, of an attempt without a failure"
        if any(step.work.samples > _MOST_SAMPLES for rank in record.ranks for step in rank.steps):
            yield "ranks.steps.work.samples: more than any step has"
        for place, count in enumerate(counts):
            if count != counts[0] or not count:
                yield f"ranks.{place}.steps: {count} steps, of rank 0 there are {counts[0]}"


def _faults_in_times(record: Record) -> Iterator[str]:
    for place, rank in enumerate(record.ranks):
        for number, step in enumerate(rank.steps):
            spans = {f".spans.{index}": (span.start_ns, span.end_ns) for index, span in enumerate(step.spans)}
            for name, (start_ns, end_ns) in {"": (step.start_ns, step.end_ns - 1), **spans}.items():
                if not 0 <= start_ns <= end_ns:
                    key = f"ranks.{place}.steps.{number}{name}"
                    yield f"{key}: its times are negative, go backwards, or have no length"


def _checksum(sequence: int, body: bytes) -> bytes:
    return hashlib.sha256(b"%d:%s" % (sequence, body)).hexdigest()[:16].encode()
