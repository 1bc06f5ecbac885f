"""Tie this process's life to its parent's, and to its own what it starts."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(signum: signal.Signals) -> None:
    """Ask the kernel to send ``signum`` when the parent dies. Raises ``OSError`` when it refuses."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the request: the signal would never come
        os.kill(os.getpid(), signum)


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
