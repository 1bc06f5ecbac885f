"""What a failing test leaves running is killed: a process that waits for the test would never end."""

from __future__ import annotations

import subprocess
from types import TracebackType


def kill_on_failure() -> None:
    """Have ``with subprocess.Popen`` kill its process before it waits for it, where an exception leaves the block.

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
