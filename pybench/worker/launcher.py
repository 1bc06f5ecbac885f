"""The worker's launcher role: import the backend once, then fork the ranks of this host."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pybench.model.tuning import LOOPBACK
from pybench.model.wire import STARTER_VARIABLE
from pybench.worker.backend import missing_package
from pybench.worker.exchange import EventStream, read_orders
from pybench.worker.main import blind_header, import_backend, run_rank
from pybench.worker.process import die_with_parent
from pybench.worker.ranks import own_place

_OWN_END_S = 0.3
"""Time for other ranks to report the same failure before they are ended."""
_TERMINATE_S = 5.0
"""Time from SIGTERM to SIGKILL."""
_POLL_S = 0.02
_LOOPBACK = "127.0.0.1"
_SURVIVE_FORKS = re.compile(r"jemalloc_bg_thd|cuda\d+")
"""Threads that do not matter to a fork: of pyarrow's jemalloc, which handles forks, and of NVML, for its events."""
_CUDA_LIBRARY = "libcuda.so"
_NOT_INITIALIZED = 3
"""``CUDA_ERROR_NOT_INITIALIZED`` of the CUDA driver API."""


@dataclass(frozen=True)
class Group:
    """The launchers of several hosts, of which this is number ``node_rank``; number 0 serves at ``address``.

    ``local_address`` is this host's address; ``local_port`` is held there for a server of its ranks.
    """

    num_nodes: int
    node_rank: int
    address: str
    port: int
    local_address: str
    local_port: int


def launch(exchange: Path, num_ranks: int, group: Group | None = None) -> int:
    """Run all ranks of this host to their end. Returns 0, or 1 when one failed; the ranks' streams give the reason."""
    os.environ[STARTER_VARIABLE] = str(os.getpid())
    if group is not None:
        os.environ.update(own_place(group.local_address, group.local_port))
    order = read_orders(exchange)[0]
    for name, value in {**LOOPBACK, "OMP_NUM_THREADS": "1"}.items():
        os.environ.setdefault(name, value)
    try:
        import_backend(order)
        with _meeting(num_ranks, group) as (variables, serve):
            ranks = {_start(exchange, rank, variables): rank for rank in range(num_ranks)}
            with serve():
                return _follow(ranks)
    except ImportError as error:
        with closing(EventStream(exchange, 0)) as events:
            events.write(blind_header(order))
            events.write(missing_package(error, order.settings.backend))
        return 1


@contextmanager
def _meeting(num_ranks: int, group: Group | None) -> Iterator[tuple[dict[str, str], Callable[[], Any]]]:
    """Variables of torch's ``env://`` rendezvous, and the server that the ranks meet at, where it is this host's.

    The server is a thread: it starts after the last fork. On one host it listens before, so that its port is known.
    """
    variables = {"LOCAL_WORLD_SIZE": str(num_ranks), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    if group is not None:
        world_size = num_ranks * group.num_nodes
        places = {"GROUP_RANK": str(group.node_rank), "GROUP_WORLD_SIZE": str(group.num_nodes)}
        address = {"MASTER_ADDR": group.address, "MASTER_PORT": str(group.port), "WORLD_SIZE": str(world_size)}
        yield (
            {**variables, **places, **address},
            partial(_server, group.address, group.port, serves=group.node_rank == 0),
        )
        return
    with socket.create_server((_LOOPBACK, 0), backlog=2 * num_ranks) as listening:
        port = listening.getsockname()[1]
        address = {"MASTER_ADDR": _LOOPBACK, "MASTER_PORT": str(port), "WORLD_SIZE": str(num_ranks)}
        yield (
            {**variables, **address},
            lambda: _server(_LOOPBACK, port, serves=True, listening=os.dup(listening.fileno())),
        )


@contextmanager
def _server(address: str, port: int, *, serves: bool, listening: int | None = None) -> Iterator[None]:
    """A store for the ranks, as long as they live."""
    if not serves:
        yield
        return
    from torch import distributed  # noqa: PLC0415 - imported by now

    store_of = distributed.TCPStore  # type: ignore[attr-defined]  # exported for Python alone
    store = store_of(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listening)
    yield
    del store


def _start(exchange: Path, rank: int, variables: dict[str, str]) -> int:
    """Process id of a rank: a fork with all that is imported, or a program of its own where a fork is not safe."""
    first = int(variables.get("GROUP_RANK", "0")) * int(variables["LOCAL_WORLD_SIZE"])
    numbers = {"RANK": str(first + rank), "LOCAL_RANK": str(rank), **variables}
    if fork_hazard() is not None:
        entry = Path(__file__).with_name("__main__.py")
        command = (sys.executable, "-I", "-B", str(entry), str(exchange))
        return subprocess.Popen(command, env={**os.environ, **numbers}, start_new_session=True).pid
    pid = os.fork()
    if pid == 0:
        end_as(lambda: _be_rank(exchange, numbers))
    return pid


def _be_rank(exchange: Path, numbers: dict[str, str]) -> int:
    die_with_parent()
    os.setsid()
    os.environ.update(numbers)
    return run_rank(exchange)


def end_as(work: Callable[[], int]) -> None:
    """Do the work of a forked process and exit with its code, without the parent's handlers. Never returns."""
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001 - the parent's handlers are not this process's
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fork_hazard() -> str | None:
    """Why a fork of this process would differ from a new one: threads, or an initialized CUDA. ``None`` for neither."""
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    threads = sorted(name for name in threads if not _SURVIVE_FORKS.fullmatch(name))
    if len(threads) > 1:
        return f"{len(threads)} threads run: {', '.join(dict.fromkeys(threads))}"
    if _CUDA_LIBRARY not in Path("/proc/self/maps").read_text():
        return None  # without the driver's library nobody has called cuInit
    code = ctypes.CDLL(f"{_CUDA_LIBRARY}.1").cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p()))
    return None if code == _NOT_INITIALIZED else "CUDA is initialized"


def _follow(ranks: dict[int, int]) -> int:
    """Wait for all ranks; the first that fails ends the others. Their exit codes go to the log, the first one last."""
    failed: list[str] = []
    deadlines: list[tuple[float, signal.Signals]] = []
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            if deadlines and time.monotonic() > deadlines[0][0]:
                number = deadlines.pop(0)[1]
                for other in ranks:
                    os.kill(other, number)
            time.sleep(_POLL_S)
        elif pid in ranks:
            rank, code = ranks.pop(pid), os.waitstatus_to_exitcode(status)
            if code != 0:
                failed.insert(0, f"rank {rank} (pid {pid}) exitcode : {code}")
                now = time.monotonic()
                deadlines = deadlines or [
                    (now + _OWN_END_S, signal.SIGTERM),
                    (now + _OWN_END_S + _TERMINATE_S, signal.SIGKILL),
                ]
    print("\n".join(failed), file=sys.stderr)  # noqa: T201 - standard error is the attempt's log
    return 1 if failed else 0
