"""The worker's launcher role: start N ranks of this machine with torchrun, alone or with other hosts."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pybench.model.loopback import LOOPBACK
from pybench.model.starter import STARTER_VARIABLE
from pybench.worker.events import EventStream
from pybench.worker.failure import missing_package
from pybench.worker.main import blind_header
from pybench.worker.orders import read_orders
from pybench.worker.ranks import own_place


@dataclass(frozen=True)
class Group:
    """The launchers of several hosts, of which this is number ``node_rank``; number 0 serves at ``address``.

    ``local_address`` is this host's own; ``local_port`` is held there for a server of its ranks' own.
    """

    num_nodes: int
    node_rank: int
    address: str
    port: int
    local_address: str
    local_port: int


def torchrun_arguments(exchange: Path, num_ranks: int, group: Group | None = None) -> list[str]:
    """Arguments for torchrun: no restarts; one node on loopback, or a group whose every rank has its number before."""
    entry = Path(__file__).with_name("__main__.py")
    return [
        *(_alone() if group is None else _together(group)),
        f"--nproc-per-node={num_ranks}",
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


def _alone() -> tuple[str, ...]:
    return ("--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")


def _together(group: Group) -> tuple[str, ...]:
    """A static rendezvous: the dynamic one guesses by host names who serves, and numbers nodes as they come."""
    address = f"[{group.address}]" if ":" in group.address else group.address
    return (
        f"--nnodes={group.num_nodes}",
        f"--node-rank={group.node_rank}",
        "--rdzv-backend=static",
        f"--rdzv-endpoint={address}:{group.port}",
        f"--master-addr={address}",
        f"--master-port={group.port}",
        f"--local-addr={group.local_address}",
    )


def launch(exchange: Path, num_ranks: int, group: Group | None = None) -> int:
    """Run all ranks of this host to their end. Returns 0, or 1 when one failed; the ranks' streams give the reason."""
    os.environ[STARTER_VARIABLE] = str(os.getpid())
    if group is not None:
        os.environ.update(own_place(group.local_address, group.local_port))
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
        run.main(torchrun_arguments(exchange, num_ranks, group))
    except ChildFailedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - standard error is the attempt's log
        return 1
    return 0
