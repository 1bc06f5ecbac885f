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
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from pybench.model.tuning import LOOPBACK
from pybench.model.wire import STARTER_VARIABLE
from pybench.worker.backend import MissingPackageError
from pybench.worker.exchange import EventStream, read_orders
from pybench.worker.main import import_backend, report_missing, run_rank
from pybench.worker.process import die_with_parent
from pybench.worker.ranks import OWN_PLACE

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

OVER_HOSTS = ("--ranks", "--nodes", "--node-rank", "--meet", "--local")
"""Options of the launchers of several hosts; that of one host has the first alone.

The launcher of number 0 of ``--node-rank`` serves at the address and port ``--meet``. ``--local`` has this host's own
address, and a port that is held there for a server of its ranks.
"""


def launch(exchange: Path, given: Mapping[str, str]) -> int:
    """Run all ranks of this host to their end, with the options ``given``. Returns 0, or 1 when one failed."""
    os.environ[STARTER_VARIABLE] = str(os.getpid())
    num_ranks = int(given["--ranks"])
    if spans_hosts := "--nodes" in given:
        os.environ[OWN_PLACE] = given["--local"]
    order = read_orders(exchange)[0]
    for name, value in {**LOOPBACK, "OMP_NUM_THREADS": "1"}.items():
        os.environ.setdefault(name, value)
    try:
        import_backend(order)
        if spans_hosts:
            variables = {"GROUP_RANK": given["--node-rank"], "GROUP_WORLD_SIZE": given["--nodes"]}
            variables["MASTER_ADDR"], variables["MASTER_PORT"] = given["--meet"].split(" ")
            variables["WORLD_SIZE"] = str(num_ranks * int(given["--nodes"]))
            return _run_ranks(exchange, num_ranks, variables, serves=variables["GROUP_RANK"] == "0")
        with socket.create_server((_LOOPBACK, 0), backlog=2 * num_ranks) as listening:
            variables = {"MASTER_ADDR": _LOOPBACK, "MASTER_PORT": str(listening.getsockname()[1])}
            variables["WORLD_SIZE"] = str(num_ranks)
            return _run_ranks(exchange, num_ranks, variables, serves=True, listening=listening)
    except MissingPackageError as error:
        with closing(EventStream(exchange, 0)) as events:
            return report_missing(error, order, events)


def _run_ranks(
    exchange: Path, num_ranks: int, place: dict[str, str], *, serves: bool, listening: socket.socket | None = None
) -> int:
    """Start the ranks with the variables of torch's ``env://`` rendezvous, and follow them to their end.

    The server that the ranks of all hosts meet at is a thread: it starts after the last fork. On one host its socket is
    ``listening`` before, so that its port is known.
    """
    variables = {**place, "LOCAL_WORLD_SIZE": str(num_ranks), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = {_start(exchange, rank, variables): rank for rank in range(num_ranks)}
    store = None
    if serves:
        from torch import distributed  # noqa: PLC0415 - imported by now

        store = distributed.TCPStore(  # type: ignore[attr-defined]  # exported for Python alone
            place["MASTER_ADDR"],
            int(place["MASTER_PORT"]),
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=os.dup(listening.fileno()) if listening else None,
        )
    code = _follow(ranks)
    del store  # which lives as long as the ranks
    return code


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

        def be_rank() -> int:
            die_with_parent()
            os.setsid()
            os.environ.update(numbers)
            return run_rank(exchange)

        end_as(be_rank)
    return pid


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
