"""A process between pybench and a program that it starts: it outlives both for as long as it takes to kill the rest.

Whatever the program starts has the guardian among its ancestors: a daemon that leaves its parent, its session and its
environment becomes the guardian's child, by ``PR_SET_CHILD_SUBREAPER``. Once pybench has died, or the guardian gets
``SIGUSR2``, every descendant is killed. Started as a script: ``python3 -I -S guardian.py PYBENCH_PID MARK ARGV...``.
It ends as the program does. With ``MARK`` as ``VARIABLE=TOKEN``, set for the program, which is a worker, its
descendants are killed at that end too; with ``-`` they stay: an engine's client leaves the monitor of a container.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # takes longer to import than the rest

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_END = signal.SIGUSR2
# The program has these itself, from who sends them or from a terminal.
_NOT_OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Python itself ignores these; a program that it starts does not.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_STARTED = 127
_LONGEST_PAUSE_S = 0.5


def main(arguments: Sequence[str]) -> None:
    """Run the program to its end, then end as it did. Does not return."""
    starter, mark, *argv = arguments
    name, marked, token = mark.partition("=")
    variables = {name: token} if marked else {}
    guard(int(starter), lambda handlers: _become(argv, variables, handlers), kills=bool(marked))


def guard(parent: int, work: Callable[[Mapping[signal.Signals, Any]], None], *, kills: bool) -> None:
    """Be the guardian of a child that does ``work``, then end as it did; all that it left is killed where ``kills``.

    ``work`` gets the handlers of signals that were this process's before. Does not return.
    """
    libc = adopt_orphans()
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _NOT_OURS}
    handlers[_END] = signal.signal(_END, _end_all)
    libc.prctl(_PR_SET_PDEATHSIG, int(_END), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before the kernel was set to report it
    signal.pthread_sigmask(signal.SIG_BLOCK, {_END})
    if (child := os.fork()) == 0:
        work(handlers)
        os._exit(_NOT_STARTED)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {_END})
    pid, status = os.waitpid(-1, 0)
    while pid != child:  # what else ends meanwhile is reaped
        pid, status = os.waitpid(-1, 0)
    if kills:
        kill_descendants()
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and code not in (-signal.SIGKILL, -signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def adopt_orphans() -> ctypes.CDLL:
    """Become the parent of each descendant whose own parent ends, for :func:`kill_descendants`."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return libc


def _become(argv: Sequence[str], variables: Mapping[str, str], handlers: Mapping[signal.Signals, Any]) -> None:
    """Be the program ``argv``, which ignores the signals that pybench was started to ignore."""
    for number in (*_NOT_OURS, *_IGNORED_BY_PYTHON, _END):
        ignored = number in _NOT_OURS and handlers[number] == signal.SIG_IGN
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {_END})
    try:
        os.execvpe(argv[0], [*argv], {**os.environ, **variables})  # noqa: S606 - no shell is wanted
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201 - the program's output


def restore(handlers: Mapping[signal.Signals, Any]) -> None:
    """Handle signals as before the guardian was made."""
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {_END})


def _end_all(_number: int, _frame: FrameType | None) -> None:
    kill_descendants()
    os._exit(1)


def kill_descendants() -> None:
    """Kill until there is nobody left: a killed parent's children become this process's own."""
    pause_s = 0.002
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as stream:  # noqa: PTH123 - starts faster
            children = stream.read().split()
        for pid in children:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except PermissionError:
                return  # of another user by its own doing: it can't be ended from here
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1:])
