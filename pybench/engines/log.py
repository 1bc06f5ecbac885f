"""The log of a worker: what it wrote to standard output and error."""

from __future__ import annotations

from pathlib import Path

_TAIL_LINES = 80
_TAIL_BYTES = 64 * 1024


def log_tail(log: Path) -> str:
    """Last lines of a log, empty where there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return "\n".join(stream.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])
    except OSError:
        return ""
