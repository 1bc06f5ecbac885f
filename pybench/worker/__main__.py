"""Entry of the staged worker: ``python3 -I -B STAGE/pybench/worker/__main__.py EXCHANGE [--ranks N ...]``.

With ``--starter FD`` it forks such workers for the host at the other end of that socket.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

# -I leaves the script's folder off sys.path. An editable install has a finder of its own, which would come first: the
# stage must be the only place that pybench can come from.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.meta_path.insert(0, PathFinder)

from pybench.worker.process import die_with_parent  # noqa: E402 - only now it is the staged one

if __name__ == "__main__":
    # Before the other imports, which take long enough for the host to be killed meanwhile.
    die_with_parent()

from pybench.worker import launcher, main, starter  # noqa: E402


def run(argv: Sequence[str]) -> int:
    """Be one rank, or with ``--ranks N`` the launcher of N, which may meet those of other hosts; its exit code."""
    if argv[0] == "--starter":
        with socket.socket(fileno=int(argv[1])) as host:
            return starter.serve(host, run)
    exchange, given = Path(argv[0]).resolve(), dict(zip(argv[1::2], argv[2::2], strict=False))
    if len(argv) == 1:
        return main.run_rank(exchange)
    if len(argv) == 1 + 2 * len(given) and tuple(given) in {launcher.OVER_HOSTS[:1], launcher.OVER_HOSTS}:
        return launcher.launch(exchange, given)
    raise SystemExit(f"worker: found {argv}, expected EXCHANGE [--ranks N [{' '.join(launcher.OVER_HOSTS[1:])}]]")


if __name__ == "__main__":
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's own teardown can abort in a library's threads (gloo's, seen once in three runs), long after the
    # last event was written; a measurement must not fail on that.
    os._exit(code)
