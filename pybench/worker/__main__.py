"""Entry of the staged worker: ``python3 -I -B STAGE/pybench/worker/__main__.py EXCHANGE [--ranks N]``."""

from __future__ import annotations

import os
import sys
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

from pybench.worker import launcher, main  # noqa: E402


def run(argv: list[str]) -> int:
    """Be one rank, or with ``--ranks N`` the launcher of N. Returns the exit code."""
    exchange = Path(argv[0]).resolve()
    if len(argv) == 1:
        return main.run_rank(exchange)
    if len(argv) == 3 and argv[1] == "--ranks":  # noqa: PLR2004 - the documented form
        return launcher.launch(exchange, num_ranks=int(argv[2]))
    raise SystemExit(f"worker: found {argv}, expected EXCHANGE [--ranks N]")


if __name__ == "__main__":
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's own teardown can abort in a library's threads (gloo's, seen once in three runs), long after the
    # last event was written; a measurement must not fail on that.
    os._exit(code)
