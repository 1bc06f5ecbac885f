"""Tie this process's life to its parent's."""

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
