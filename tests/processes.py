"""Processes that tests start: waiting for their actions, and killing them after a failing test."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

_Seen = TypeVar("_Seen")


def wait_for(condition: Callable[[], object], limit_s: float = 120) -> None:
    """Return once something has come about; fails after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {limit_s:g} s"
        time.sleep(0.02)


def settled(look: Callable[[], _Seen], expected: _Seen, limit_s: float = 120) -> _Seen:
    """What ``look`` sees once that is ``expected``, else at the end of ``limit_s``.

    A second look may see what another process of the machine starts for a moment.
    """
    deadline = time.monotonic() + limit_s
    while (seen := look()) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen


def kill_on_failure() -> None:
    """Have ``with subprocess.Popen`` kill its process before it waits for it, where an exception leaves the block.

    A process that waits for the test would never end.

    The wait that Python makes has no limit, and the test's own time limit has passed by then or ends nothing: it raises
    once. A block that is left without an exception waits as ever.
    """
    leave = subprocess.Popen.__exit__

    def leave_killed(
        process: subprocess.Popen[bytes],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            process.kill()
        leave(process, kind, error, trace)

    setattr(subprocess.Popen, leave.__name__, leave_killed)
