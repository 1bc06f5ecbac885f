"""Workers that are forked from a process with their libraries: an attempt starts in seconds where imports take longer.

One starter serves a backend and an environment as long as the run lasts. See :mod:`pybench.worker.starter`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pybench.files.safe_folder import opened_file, opened_folder
from pybench.machine.command import guarded_argv
from pybench.model.record import ALONE, FORKED
from pybench.model.wire import ROOM_VARIABLE, STARTER_VARIABLE
from pybench.run.engines.base import Argv
from pybench.run.engines.process import (
    ATTEMPT_VARIABLE,
    GRACE_S,
    KILL_S,
    NEW_FILE,
    Worker,
    WorkerProcess,
    end_marked,
    unkillable,
)

_ROOM_BYTES = 2**14
_MAX_LINE_BYTES = 2**12
_MAX_REASON = 200
COLD_VARIABLE = "PYBENCH_COLD_STARTS"
"""Set to 1, every worker imports its libraries itself, to compare both starts."""
OF_A_JOB = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Variables that libraries read after their import: jobs with different values share a starter."""
_FOR_FORKS = {"OPENBLAS_NUM_THREADS": "1"}
"""Imports start no threads of numpy's library."""
_GONE = 1
"""Exit code of a worker whose starter ended under it."""


class Starter:
    """A process that forks workers; the first one waits until it has imported their libraries."""

    def __init__(self, argv: Argv, environment: Mapping[str, str], token: str) -> None:
        """Start it. Raises ``OSError``."""
        self.socket, theirs = socket.socketpair()
        with theirs:
            mark = {ATTEMPT_VARIABLE: token, STARTER_VARIABLE: str(os.getpid()), ROOM_VARIABLE: "R" * _ROOM_BYTES}
            self._process = subprocess.Popen(
                guarded_argv((*argv, "--starter", str(theirs.fileno())), f"{ATTEMPT_VARIABLE}={token}"),
                env={**_FOR_FORKS, **environment, **mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._received = b""
        self.is_usable = True
        """Whether it takes orders: false for a Python without the role, and after its end."""

    def send(self, arguments: Argv, log: Path, environment: Mapping[str, str]) -> bool:
        """Order a worker. Returns whether the starter took the order."""
        with opened_folder(log.parent) as folder, opened_file(folder, log.name, NEW_FILE) as output:
            variables = os.memfd_create("environment")
            try:
                os.write(variables, json.dumps(environment).encode(errors="surrogateescape"))
                os.lseek(variables, 0, os.SEEK_SET)
                line = json.dumps({"arguments": arguments}).encode()
                return socket.send_fds(self.socket, [line], [output, variables]) == len(line)
            except OSError:
                return False
            finally:
                os.close(variables)

    def next_words(self, timeout_s: float) -> dict[str, object] | None:
        """Its next line; ``None`` where none came in time. Raises ``EOFError`` where it ended or sent nonsense."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            if not select.select([self.socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = b""
            with suppress(OSError):
                data = self.socket.recv(_MAX_LINE_BYTES)
            self._received += data
            if not data or len(self._received) > _MAX_LINE_BYTES:
                raise EOFError
        line, _, self._received = self._received.partition(b"\n")
        try:
            return dict(json.loads(line))
        except (TypeError, ValueError):
            raise EOFError from None

    def close(self) -> None:
        """End it and its forks."""
        self.is_usable = False
        self.socket.close()
        self._process.send_signal(signal.SIGUSR2)  # its guardian's sign to kill all of it
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ForkedWorker(Worker):
    """A worker of a starter; where the starter can't fork it, ``alone`` starts it as a process of its own."""

    def __init__(self, starter: Starter, token: str, alone: Callable[[], WorkerProcess]) -> None:
        self._starter, self._token, self._alone = starter, token, alone
        self._is_forked = False
        self._pidfd: int | None = None
        """``None`` also for a worker that ended before its number arrived."""
        self._code: int | None = None
        self._cold: WorkerProcess | None = None
        self._is_ending = False
        self.start = FORKED
        """As in its record."""

    def wait(self, timeout_s: float) -> int | None:
        """Exit code once the worker has ended (negative: the signal), ``None`` while it runs or is being started."""
        if self._cold is not None:
            return self._cold.wait(timeout_s)
        deadline = time.monotonic() + timeout_s
        while self._code is None:
            try:
                words = self._starter.next_words(max(0.0, deadline - time.monotonic()))
            except EOFError:
                self._starter.is_usable = False
                words = {"ended": True}
            if words is None:
                return None
            if (cold := self._hear(words)) is not None:
                self._cold = cold
                return cold.wait(max(0.0, deadline - time.monotonic()))
        return self._code

    def _hear(self, words: Mapping[str, object]) -> WorkerProcess | None:
        """Note what the starter did; gives the worker that must be started alone, if it must."""
        pid, status = words.get("pid"), words.get("status")
        if isinstance(pid, int) and not self._is_forked and pid > 1:
            self._is_forked = True
            with suppress(OSError):
                self._pidfd = os.pidfd_open(pid)
        elif isinstance(status, int) and self._is_forked:
            self._code = os.waitstatus_to_exitcode(status)
        elif words.keys() & {"refused", "ended"}:
            if not self._is_forked and not self._is_ending:
                reason = str(words.get("refused", "the starter ended"))[:_MAX_REASON]
                self.start = f"{ALONE}: {reason.encode(errors='replace').decode()}"
                return self._alone()
            self._code = _GONE
        return None

    def end(self) -> int:
        """End the whole tree and return its exit code. Raises ``MachineError`` where it can't be."""
        if self._cold is not None:
            return self._cold.end()
        self._is_ending = True  # a starter that is gone by now is no reason to start the worker alone
        end_marked(self._token)
        if self.wait(GRACE_S) is None:
            if self._pidfd is None:
                self._starter.close()  # it imports, or waits for a disk
                return _GONE
            signal.pidfd_send_signal(self._pidfd, signal.SIGUSR2)
            if self.wait(KILL_S) is None:
                raise unkillable(self._token, KILL_S)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        assert self._code is not None
        return self._code
