"""The journal of a run: its records one a line, each on disk before the next attempt begins; it survives SIGKILL."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pybench.files.run.journal_line import MAX_LINE_BYTES, decode_line, encode_line, is_whole, sequence_of
from pybench.files.safe_folder import opened_file, opened_folder, read_file, write_all
from pybench.model.errors import RunFolderError, is_machine_fault
from pybench.model.record import JOURNAL_FILE, Record

DEFECTS = (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors of reading a folder that is no run of this pybench."""


class AbsentError(RunFolderError):
    """A file of the run's folder is not there."""


@contextmanager
def run_folder_errors(path: Path, doing: str, remedy: str = "") -> Iterator[None]:
    """Turn an error of the system into a ``RunFolderError`` with the failed action and the next step.

    A fault of the machine stays an ``OSError``.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise AbsentError(f"{path}: cannot {doing}: {error.strerror}{remedy}") from error
    except OSError as error:
        if is_machine_fault(error):
            raise OSError(error.errno, f"cannot {doing}: {error.strerror}", str(path)) from error
        raise RunFolderError(f"{path}: cannot {doing}: {error.strerror}{remedy}") from error


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
        """Add ``record`` and return once it is on disk. Raises ``RunFolderError`` when it can't be written.

        A line that a crash cut short is overwritten.
        """
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
            raise RunFolderError(f"{self._path}:{number}: does not end its line; the journal was edited or damaged")
        records = tuple(decode_line(self._path, number, line) for number, line in enumerate(_lines(data, end), start=1))
        _refuse_twins(self._path, records)
        self._num_records = len(records)
        return records

    def _require_complete(self, last_line: bytes) -> None:
        found = sequence_of(last_line)
        if self._num_records is not None and found != self._num_records:
            raise RunFolderError(
                f"{self._path}: ends with record {found}, {self._num_records} were written; "
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
    """Where the last whole line of a file ends, and the line; what follows it was cut short by a crash.

    Raises ``OSError`` where both are longer than any line.
    """
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


def _refuse_twins(path: Path, records: Sequence[Record]) -> None:
    """An attempt is recorded once. Raises ``RunFolderError``."""
    seen: dict[tuple[str, int], int] = {}
    for number, record in enumerate(records, start=1):
        first = seen.setdefault((record.point_id, record.attempt), number)
        if first != number:
            raise RunFolderError(
                f"{path}:{number}: attempt {record.attempt} at {record.point_id} is on line {first} too"
            )
