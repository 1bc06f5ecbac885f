"""One rank's event file, read line by line while the worker writes it; bounded, whatever the worker does to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pybench.model.errors import is_machine_fault

# A step of 2^17 requests takes 20 MiB.
MAX_LINE_BYTES = 32 * 2**20
# Far more than any session's steps; a sparse file is as large as it likes.
MAX_FILE_BYTES = 2**30
_CHUNK_BYTES = 2**20


class EventFile:
    """Gives whole new lines at each call of :meth:`new_lines`; the last one may still be incomplete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._begun = bytearray()

    def new_lines(self) -> Iterator[bytes]:
        """Lines since the last call. Raises ``ValueError`` when it can't be read, or is larger than any should be."""
        try:
            with open(self._path, "rb", buffering=0, opener=_no_follow) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise ValueError(f"{self._path.name} is no regular file")
                stream.seek(self._offset)
                while chunk := stream.read(_CHUNK_BYTES):
                    yield from self._lines(chunk)
        except FileNotFoundError:
            return
        except OSError as error:
            if is_machine_fault(error):
                raise
            raise ValueError(f"{self._path.name} can't be read: {error.strerror}") from error

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        self._offset += len(chunk)
        if self._offset > MAX_FILE_BYTES:
            raise ValueError(f"{self._path.name} is larger than {MAX_FILE_BYTES} bytes")
        *ended, begun = chunk.split(b"\n")
        for line in ended:
            self._begun += line
            whole = bytes(self._begun)
            self._begun.clear()
            yield whole
        self._begun += begun
        if len(self._begun) > MAX_LINE_BYTES:
            raise ValueError(f"{self._path.name} has a line of more than {MAX_LINE_BYTES} bytes")


def _no_follow(path: str | os.PathLike[str], flags: int) -> int:
    """Follow no link to another file and wait for no pipe: what runs in a container may be hostile."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
