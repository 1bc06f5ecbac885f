"""Starter of fake workers, which are forks of it as real ones are of theirs: ``--starter FD``; else a fake worker.

Workers get its variables and the host's.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

WORKER = Path(__file__).with_name("fake_worker.py")
CODE = compile(WORKER.read_text(encoding="utf-8"), str(WORKER), "exec")


def run(arguments: Sequence[str]) -> int:
    """Be a fake worker; gives its exit code."""
    sys.argv = [str(WORKER), *arguments]
    try:
        exec(CODE, {"__name__": "__main__", "__file__": str(WORKER)})
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def serve(host: socket.socket) -> int:
    """Fork a fake worker for each order."""
    from pybench.worker import starter  # noqa: PLC0415 - no need of a worker that is started alone

    told = {name: value for name, value in os.environ.items() if name.startswith("FAKE_")}

    def run_told(arguments: Sequence[str]) -> int:
        os.environ.update(told)
        return run(arguments)

    setattr(starter, starter._import_for.__name__, lambda _exchange: None)  # of no backend
    return starter.serve(host, run_told)


if sys.argv[1] != "--starter":
    sys.exit(run(sys.argv[1:]))
with socket.socket(fileno=int(sys.argv[2])) as host:
    sys.exit(serve(host))
