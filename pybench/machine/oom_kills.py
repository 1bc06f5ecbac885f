"""Processes that the kernel ended for want of host memory."""

from __future__ import annotations

from pathlib import Path

VMSTAT = Path("/proc/vmstat")
_NAME = "oom_kill"


def num_oom_kills(path: Path = VMSTAT) -> int | None:
    """Since the host started, of all control groups together; ``None`` where the kernel does not count them.

    Linux counts them in ``/proc/vmstat`` since 4.13, inside containers too.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = (line.split() for line in lines)
    return next((int(words[1]) for words in found if len(words) == 2 and words[0] == _NAME), None)  # noqa: PLR2004
