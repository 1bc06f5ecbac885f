"""Processes of a worker that lost their guardian: they become this process's children, and are killed.

A worker on this machine is of the same user as its guardian and may kill it. What the guardian held is then handed to
the nearest ancestor that requests it (``PR_SET_CHILD_SUBREAPER``, prctl(2)): this process, while it has a
worker.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
_POLL_S = 0.02


class Adoption:
    """From its making on, this process adopts what its children leave."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._before = frozenset(_children())
        was = ctypes.c_int(0)
        self._libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
        self._was = was.value
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def end(self, kill_s: float) -> tuple[int, ...]:
        """Kill what was adopted, and adopt nothing from now on; returns what lives on after ``kill_s``."""
        deadline = time.monotonic() + kill_s
        while True:
            adopted = tuple(self._adopted())
            left = tuple(pid for pid in adopted if not _has_ended(pid))
            if not adopted or (left and time.monotonic() > deadline):
                break
            # Children of those that ended are adopted in their turn, hence the loop.
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        self.close()
        return left

    def close(self) -> None:
        """Adopt nothing from now on."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, self._was, 0, 0, 0)

    def _adopted(self) -> Iterator[int]:
        """New children that are in another session; programs that this process starts itself are in its own."""
        own = os.getsid(0)
        for pid in frozenset(_children()) - self._before:
            with suppress(ProcessLookupError):
                if os.getsid(pid) != own:
                    yield pid


def _has_ended(pid: int) -> bool:
    """Whether this child is over; if so, the kernel forgets it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _children() -> Iterator[int]:
    """Of every thread."""
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            yield from (int(pid) for pid in file.read_text(encoding="ascii").split())
