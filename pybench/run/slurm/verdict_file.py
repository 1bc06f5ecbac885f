"""What each task of a Slurm step leaves: its exit code, in a file of a folder that all share.

Slurm's own exit code mixes those of all tasks, and is 0 where a node went down: it tells infrastructure only.
"""

from __future__ import annotations

import json
from pathlib import Path

_MAX_BYTES = 4096
_MAX_CODE = 255


def write_verdict(folder: Path, node_rank: int, host: str, code: int) -> None:
    """Leave the exit code of task ``node_rank``. Raises ``OSError``."""
    part = folder / f".{node_rank}.part"
    part.write_text(json.dumps({"host": host, "exit_code": code}) + "\n", encoding="utf-8")
    part.rename(folder / f"{node_rank}.json")


def read_verdict(folder: Path, node_rank: int) -> int | None:
    """The exit code of task ``node_rank``; ``None`` where it left none that can be read."""
    try:
        with (folder / f"{node_rank}.json").open("rb") as stream:
            code = json.loads(stream.read(_MAX_BYTES))["exit_code"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) and 0 <= code <= _MAX_CODE else None
