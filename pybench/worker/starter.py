"""The worker's starter role: import a backend once, then fork a new worker for each attempt.

The host sends one line for each attempt, with the worker's log and its environment as open files. A worker inherits
imported modules alone. It makes its own CUDA context, allocator, communicators and threads, and its writes to memory
reach no other worker (copy on write). The starter does not read environments, so its memory has no credentials.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pybench.model.wire import ROOM_VARIABLE, STARTER_VARIABLE
from pybench.worker import guardian
from pybench.worker.exchange import read_orders
from pybench.worker.imports import spared_by_collector
from pybench.worker.launcher import end_as, fork_hazard
from pybench.worker.main import import_backend

_MAX_LINE_BYTES = 2**16
_SET_FOR_ALL = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Torch then answers whether there is a GPU without initializing CUDA, after which it could not be forked."""
_REPLACES_PARTS = "unsloth"
"""A training strategy whose library patches others: it must be imported before them."""


def serve(host: socket.socket, run: Callable[[Sequence[str]], int]) -> int:
    """Fork a worker, which does ``run`` of its arguments, for each line of the host, until that closes."""
    guardian.adopt_orphans()  # a worker whose guardian is killed
    _tell(host, ready=True)
    before = dict(os.environ)
    os.environ.setdefault(_SET_FOR_ALL, "1")
    while True:
        line, files, _, _ = socket.recv_fds(host, _MAX_LINE_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
        if not line:
            return 0
        arguments = json.loads(line)["arguments"]
        log, environment = files
        for standard in (1, 2):
            os.dup2(log, standard)
        hazard = _import_for(Path(arguments[0]))
        if hazard is not None:
            _tell(host, refused=hazard)
        else:
            me = os.getpid()
            pid = os.fork()
            if pid == 0:
                host.close()
                imported = {name: value for name, value in os.environ.items() if before.get(name) != value}
                _be_worker(me, arguments, environment, imported, run)
            _tell(host, pid=pid)
            _, status = os.waitpid(pid, 0)
            guardian.kill_descendants()
            _tell(host, status=status)
        for file in files:
            os.close(file)


def _import_for(exchange: Path) -> str | None:
    """Import the libraries of the session in ``exchange``. Returns the reason against a fork, or ``None``."""
    order = read_orders(exchange)[0]
    if getattr(order.settings, "strategy", None) == _REPLACES_PARTS:
        return f"{_REPLACES_PARTS} replaces parts of other libraries"
    with suppress(Exception), spared_by_collector():  # the worker reports it
        preload = getattr(import_backend(order), "preload", None)
        if preload is not None:
            preload(order)
    gc.freeze()  # a pass over these objects would copy the pages that all workers share
    return fork_hazard()


def _be_worker(
    starter: int,
    arguments: Sequence[str],
    environment: int,
    imported: Mapping[str, str],
    run: Callable[[Sequence[str]], int],
) -> None:
    """Guard a worker of the host's ``environment`` in a session of its own. Does not return.

    ``imported`` are the variables that the libraries set at their import.
    """
    os.setsid()
    guard = os.getpid()

    def run_worker() -> int:
        with open(environment, encoding="utf-8", errors="surrogateescape") as stream:
            variables: dict[str, str] = json.load(stream)
        room = os.environ[ROOM_VARIABLE]
        os.environ.clear()
        os.environ.update({**variables, **imported, STARTER_VARIABLE: str(guard)})
        _show_environment(len(room))
        if "multiprocessing.process" in sys.modules:  # processes that it spawns begin in this folder
            vars(sys.modules["multiprocessing.process"])["ORIGINAL_DIR"] = str(Path.cwd())
        if "torch" in sys.modules and "OMP_NUM_THREADS" in os.environ:
            sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        return run(arguments)

    def work(handlers: Mapping[signal.Signals, Any]) -> None:
        guardian.restore(handlers)
        end_as(run_worker)

    os.chdir(Path(arguments[0]).parent)
    guardian.guard(starter, work, kills=True)


def _show_environment(room: int) -> None:
    """Write the environment where /proc shows it, over that of the starter: a worker is found by its mark there.

    Variables that don't fit are left out: the host puts the mark first and gives the starter ``room`` bytes.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end: 50 and 51 of proc(5)
    if end - start < room:
        return  # an interpreter that moved its environment
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in os.environ.items())
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, block, min(len(block), end - start - 1))


def _tell(host: socket.socket, **values: object) -> None:
    host.sendall(json.dumps(values).encode() + b"\n")
