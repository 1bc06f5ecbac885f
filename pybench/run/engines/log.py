"""The log of a worker: what it wrote to standard output and error."""

from __future__ import annotations

import os
from pathlib import Path

from pybench.files.safe_folder import opened_file, opened_folder

_TAIL_LINES = 80
_TAIL_BYTES = 64 * 1024


def log_tail(log: Path) -> str:
    """Last lines of a log, empty where there is none, or a link or a pipe that the worker put in its place."""
    try:
        with opened_folder(log.parent) as folder, opened_file(folder, log.name) as file:
            tail = os.pread(file, _TAIL_BYTES, max(0, os.fstat(file).st_size - _TAIL_BYTES))
    except OSError:
        return ""
    return "\n".join(tail.decode(errors="replace").splitlines()[-_TAIL_LINES:])
