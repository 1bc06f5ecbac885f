"""End this process when its parent ends, and its children when it ends."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from pybench.model.wire import STARTER_VARIABLE

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. Raises ``OSError`` when it refuses.

    A parent that died before this request would never be noticed: this process ends where the one that started it is
    not among its ancestors. To be called before anything else.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    starter = os.environ.get(STARTER_VARIABLE)
    if starter is not None and int(starter) not in _ancestors():
        os._exit(1)


def _ancestors() -> Iterator[int]:
    """Ids of the parent, its parent and so on: a shell may stand between a worker and the process that started it."""
    pid = os.getppid()
    while pid > 0:  # in a container the process that started this one may be the first
        yield pid
        try:
            # The name in parentheses may hold anything: fields are counted behind it (proc(5)).
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def end_group_with_me() -> None:
    """Have everything that this process starts killed when it ends, however it ends.

    A watcher in the same process group waits on a pipe that only this process holds open. Call it before any thread
    starts. A process that is not yet its group's leader becomes one: the group's other members are not its own.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    waiting, held = os.pipe()  # not inherited by programs that this process starts
    if os.fork() == 0:
        os.close(held)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.read(waiting, 1)
        os.killpg(0, signal.SIGKILL)
    os.close(waiting)
