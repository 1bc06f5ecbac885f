"""The worker's launcher role: start N ranks of this machine with torchrun."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

from pybench.model.loopback import LOOPBACK
from pybench.model.starter import STARTER_VARIABLE
from pybench.worker.events import EventStream
from pybench.worker.failure import missing_package
from pybench.worker.main import blind_header
from pybench.worker.orders import read_orders


def torchrun_arguments(exchange: Path, num_ranks: int) -> list[str]:
    """Arguments for torchrun: one node, rendezvous on loopback, no restarts."""
    entry = Path(__file__).with_name("__main__.py")
    return [
        "--nnodes=1",
        f"--nproc-per-node={num_ranks}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "--local-addr=127.0.0.1",
        "--max-restarts=0",
        # Its own choice is a new folder in the machine's /tmp, which nobody removes.
        f"--log-dir={exchange / 'torchrun'}",
        "--no-python",
        sys.executable,
        "-I",
        "-B",
        str(entry),
        str(exchange),
    ]


def launch(exchange: Path, num_ranks: int) -> int:
    """Run all ranks to their end. Returns 0, or 1 when one failed; the ranks' streams give the reason."""
    os.environ[STARTER_VARIABLE] = str(os.getpid())
    order = read_orders(exchange)[0]
    for name, value in {**LOOPBACK, "OMP_NUM_THREADS": "1"}.items():
        os.environ.setdefault(name, value)
    try:
        from torch.distributed import run  # noqa: PLC0415 - its absence is a result, not a traceback
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    except ImportError as error:
        with closing(EventStream(exchange, 0)) as events:
            events.write(blind_header(order))
            events.write(missing_package(error, order.settings.backend))
        return 1
    try:
        run.main(torchrun_arguments(exchange, num_ranks))
    except ChildFailedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - standard error is the attempt's log
        return 1
    return 0
