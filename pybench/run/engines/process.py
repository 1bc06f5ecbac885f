"""A worker as a process tree that can be ended whole."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pybench.files.safe_folder import opened_file, opened_folder
from pybench.machine.command import guarded_argv
from pybench.model.container import ContainerRun
from pybench.model.errors import MachineError

# Time for a worker to write its last event and for a launcher to end its ranks before everything is killed.
GRACE_S = 5.0
# A process that SIGKILL does not end in this time never ends.
KILL_S = 30.0
_POLL_S, _AGAIN_S = 0.05, 1.0
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
# Set for every process of a worker to the token of its job.
ATTEMPT_VARIABLE = "PYBENCH_ATTEMPT"

_UNKILLABLE: set[int] = set()
"""Processes that SIGKILL did not end within ``KILL_S``, which several levels of a run try to end."""


def processes_marked(prefix: str) -> Iterator[int]:
    """Ids of this user's processes that carry a token which starts with ``prefix``."""
    mark = f"\0{ATTEMPT_VARIABLE}={prefix}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = b"\0" + (entry / "environ").read_bytes()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                continue  # ended meanwhile, or another user's
            if mark in environment:  # a fork's has thousands of empty items, which a split would make
                yield int(entry.name)


def end_marked(prefix: str, grace_s: float = GRACE_S, kill_s: float = KILL_S) -> None:
    """Terminate, then kill, every marked process.

    A process group is not enough: each rank has its own session. Raises ``MachineError`` when one
    lives on after ``kill_s``: it waits inside the kernel for a device or a disk. A second call tries for a second.
    """
    pids = tuple(processes_marked(prefix))
    is_known = bool(pids) and _UNKILLABLE.issuperset(pids)
    _signal_all(pids, signal.SIGTERM)
    deadline = time.monotonic() + (0.0 if is_known else grace_s)
    while pids and time.monotonic() < deadline and any(processes_marked(prefix)):
        time.sleep(_POLL_S)
    # Killing may uncover children born meanwhile, hence the loop.
    deadline = time.monotonic() + (_AGAIN_S if is_known else kill_s)
    while left := tuple(processes_marked(prefix)):
        if time.monotonic() > deadline:
            _UNKILLABLE.update(left)
            raise unkillable(",".join(map(str, left)), kill_s)
        _signal_all(left, signal.SIGKILL)
        time.sleep(_POLL_S)


def unkillable(pids: str, kill_s: float) -> MachineError:
    """The error for processes that SIGKILL does not end."""
    return MachineError(
        f"killed, but not ended within {kill_s:g} s: process {pids} of a worker; it waits for a device or a "
        f"disk: see its state with `ps -o pid,stat,wchan:32,cmd -p {pids}`, and restart the machine"
    )


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


class Worker(Protocol):
    """A started worker."""

    def wait(self, timeout_s: float) -> int | None:
        """Exit code once it has ended (negative: the signal), ``None`` while it runs."""

    def container(self) -> ContainerRun | None:
        """The container it runs in, or ran in once it has ended; ``None`` for no container."""
        return None

    def end(self) -> object:
        """End all its processes, wherever they run. A second call does nothing. Raises ``MachineError``."""


class WorkerProcess(Worker):
    """A worker whose processes carry ``token``; ``guarded``, it also leaves none that dropped the token."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], log: Path, token: str, *, guarded: bool = False
    ) -> None:
        """Start ``argv``. Raises ``OSError`` when it can't be started."""
        self._token = token
        self._adoption = Adoption() if guarded else None
        if guarded:  # the guardian has no mark: it ends after the marked processes
            argv = guarded_argv(argv, f"{ATTEMPT_VARIABLE}={token}")
        else:
            environment = {**environment, ATTEMPT_VARIABLE: token}
        try:
            with opened_folder(log.parent) as folder, opened_file(folder, log.name, NEW_FILE) as output:
                self._process = subprocess.Popen(
                    argv,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=log.parent,
                    start_new_session=True,  # a terminal's Ctrl-C is for the runner, which ends workers in order
                )
        except BaseException:
            if self._adoption:
                self._adoption.close()
            raise

    def wait(self, timeout_s: float) -> int | None:
        """Exit code once the worker has ended (negative: the signal), ``None`` while it runs."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> int:
        """End the whole tree and return the first process's exit code. Raises ``MachineError`` where it can't be."""
        end_marked(self._token)
        # A worker may have stopped its guardian, and a guardian waits for a process that can't be killed.
        if self.wait(GRACE_S) is None:
            self._process.kill()
        left = () if self.wait(KILL_S) is not None else (self._process.pid,)
        if self._adoption:
            left = (*left, *self._adoption.end(KILL_S))
        if left:
            raise unkillable(",".join(map(str, left)), KILL_S)
        return self._process.returncode


_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
_ADOPTED_POLL_S = 0.02


class Adoption:
    """From its making on, this process adopts what its children leave."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._before = frozenset(_children())
        was = ctypes.c_int(0)
        self._libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
        self._was = was.value
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def end(self, kill_s: float) -> tuple[int, ...]:
        """Kill what was adopted, and adopt nothing from now on; returns what lives on after ``kill_s``."""
        deadline = time.monotonic() + kill_s
        while True:
            adopted = tuple(self._adopted())
            left = tuple(pid for pid in adopted if not _has_ended(pid))
            if not adopted or (left and time.monotonic() > deadline):
                break
            # Children of those that ended are adopted in their turn, hence the loop.
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_ADOPTED_POLL_S)
        self.close()
        return left

    def close(self) -> None:
        """Adopt nothing from now on."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, self._was, 0, 0, 0)

    def _adopted(self) -> Iterator[int]:
        """New children that are in another session; programs that this process starts itself are in its own."""
        session = os.getsid(0)
        for pid in frozenset(_children()) - self._before:
            with suppress(ProcessLookupError):
                if os.getsid(pid) != session:
                    yield pid


def _has_ended(pid: int) -> bool:
    """Whether this child is over; if so, the kernel forgets it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _children() -> Iterator[int]:
    """Of every thread."""
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            yield from (int(pid) for pid in file.read_text(encoding="ascii").split())


_TAIL_LINES = 80
_TAIL_BYTES = 64 * 1024


def log_tail(log: Path) -> str:
    """Last lines of a log, empty where there is none, or a link or a pipe that the worker put in its place."""
    try:
        with opened_folder(log.parent) as folder, opened_file(folder, log.name) as file:
            tail = os.pread(file, _TAIL_BYTES, max(0, os.fstat(file).st_size - _TAIL_BYTES))
    except OSError:
        return ""
    return "\n".join(tail.decode(errors="replace").splitlines()[-_TAIL_LINES:])
