"""Standard output and error that may be closed or full: what can't be written is dropped, and the command goes on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

_LAST_STANDARD = 2


class GuardedStream:
    """A text stream that keeps its first ``error`` and writes nothing more after it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text``, or drop it."""
        if self.error is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._drop(error)
        return len(text)

    def flush(self) -> None:
        """Flush what was written, or drop it."""
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._drop(error)

    def _drop(self, error: OSError) -> None:
        self.error = error
        # Python flushes its own stream when it ends, and would fail again.
        for name in ("stdout", "stderr"):
            if getattr(sys, f"__{name}__") is self._stream:
                setattr(sys, f"__{name}__", None)


def _open_absent_streams() -> None:
    """Put /dev/null where this process began without a standard stream, as after ``>&-``.

    A file opened later would take its number, and what a worker prints would go into that file.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for the whole process


def output_error() -> OSError | None:
    """Why not all that was printed reached standard output, where it is guarded."""
    sys.stdout.flush()
    return sys.stdout.error if isinstance(sys.stdout, GuardedStream) else None


@contextmanager
def guarded_output() -> Iterator[None]:
    """Guard both streams."""
    _open_absent_streams()
    before = sys.stdout, sys.stderr
    out, err = GuardedStream(sys.stdout), GuardedStream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        out.flush()
        err.flush()
        # A stream that failed stays guarded: Python flushes it when it ends.
        sys.stdout = before[0] if out.error is None else out
        sys.stderr = before[1] if err.error is None else err
