"""How an attempt failed, by its worker's exit code, events and log. A log is untrusted: searches take linear time."""

from __future__ import annotations

import re
import resource
import signal
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pybench.model.backend import BACKENDS, is_out_of_memory, without_allocator
from pybench.model.text import plural
from pybench.model.wire import Failure, FailureCause
from pybench.run.events.contract import WORKERS_CAUSES
from pybench.run.events.reader import RankLog

# A rank's end in the launcher's report.
_EXIT_CODE = re.compile(r"exitcode\s*: (-?\d{1,5})\b")

_DOCKER_KILLED = 128 + signal.SIGKILL
"""Exit code of a container whose first process was killed."""
_HOST_MEMORY = re.compile(
    r"\bMemoryError\b|bad_alloc|annot allocate memory|DefaultCPUAllocator|Memory allocation still failed"
    r"|failed to map segment from shared object$",
    re.MULTILINE,
)
"""Words of Python, C++, libc, torch, OpenBLAS and the loader for an allocation of host memory that failed."""
_MAY_LACK_MEMORY = frozenset(("out_of_memory", "missing_package", "engine", "exception", "exit_code", "signal"))


def failure_of_exit(code: int, ranks: Sequence[RankLog], log: str, oom_kills: int = 0) -> Failure | None:
    """What exit code (negative: signal), events and the end of the log of an ended worker show of its last attempt.

    ``oom_kills`` are processes that the kernel ended meanwhile as the host's memory ran out. That, and an allocation
    that failed under a limit, is one cause, ``host_memory``, however the worker ended.
    """
    # The launcher reports the first failure last, and itself ends ranks that are left behind with SIGTERM.
    codes = [int(each) for each in _EXIT_CODE.findall(log)]
    signals = [-each for each in codes if each < 0 and (each == codes[-1] or each != -signal.SIGTERM)]
    killed = signals[-1] if code > 0 and signals else None
    failed = _by_exit(code, killed, ranks, log)
    if failed is None:
        return None
    was_killed = code == _DOCKER_KILLED or (failed.cause == "signal" and (killed or -code) == signal.SIGKILL)
    if oom_kills and (was_killed or failed.cause == "engine"):  # which has processes of its own
        why = f"the host's memory ran out, and the kernel ended {plural(oom_kills, 'process', 'es')}"
        return replace(failed, cause="host_memory", message=f"{why}: {failed.message}")
    if failed.cause in _MAY_LACK_MEMORY and _HOST_MEMORY.search(f"{failed.message}\n{failed.detail}"):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        limited = "" if limit == resource.RLIM_INFINITY else f" (ulimit -v {limit // 1024})"
        # To install a package that is there is no remedy.
        words = failed.detail.rstrip().rpartition("\n")[2] if failed.cause == "missing_package" else failed.message
        return replace(failed, cause="host_memory", message=f"the host gave no more memory{limited}: {words}")
    return failed


def _by_exit(code: int, killed: int | None, ranks: Sequence[RankLog], log: str) -> Failure | None:
    # Where ranks disagree, one rank's trouble made the others fail in a collective.
    reported = sorted((r.failure for r in ranks if r.failure), key=lambda f: WORKERS_CAUSES.index(f.cause))
    if reported and not (killed and reported[0].cause == "exception"):
        return root_cause(reported[0], log)
    cause: FailureCause = "signal"
    if code < 0:
        message = f"ended by signal {-code}, {ranks[0].reached}"
    elif code > 0 and killed:
        # The launcher reports a rank's death in its log and exits with 1; other ranks report only that a peer is gone.
        message = f"a rank was ended by signal {killed}, {ranks[0].reached}"
    elif code > 0:
        cause, message = "exit_code", f"exit code {code} without a result, {ranks[0].reached}"
    elif silent := [rank for rank, log_of_rank in enumerate(ranks) if log_of_rank.result is None]:
        cause, message = "protocol", f"exit code 0, but no result from rank {silent[0]}"
    else:
        return None
    return Failure(cause=cause, message=message, detail=log)


_WORD = string.ascii_letters + string.digits + "_."
_ERRORS = ("Error", "Exception", "Exit")
# Errors that report another error: those of engines, and the worker's own.
_ECHOES = ("EngineError", *(text for own in BACKENDS.values() for text in (*own.log_not_started, *own.log_echoes)))
_MAX_WORDS = 400


def root_cause(failure: Failure, log: str) -> Failure:
    """``failure`` with the engine's last own error in its message, and as out of memory where that error is one."""
    if failure.cause != "engine":
        return failure
    lines = log.splitlines()
    reported = [error for line in lines if (error := _error(line))]
    errors = [error for error in reported if not any(echo in error for echo in _ECHOES)]
    # A process's death explains the errors that follow it.
    other = next(_deaths(lines), None) or next(reversed(errors), None)
    memory = next((error for error in errors if is_out_of_memory(error)), None)
    cause = memory or other
    if cause is None:
        return replace(failure, detail=log)
    message = f"{failure.message}: {without_allocator(cause)[:_MAX_WORDS]}"
    return replace(failure, cause="out_of_memory" if memory else failure.cause, message=message, detail=log)


def _error(line: str) -> str | None:
    """The part of a line that names an exception and its message: ``torch.OutOfMemoryError: CUDA out of memory``."""
    start = 0
    while (colon := line.find(": ", start)) >= 0:
        before = line[start:colon]
        word = before[len(before.rstrip(_WORD)) :]
        name = word.rpartition(".")[2]
        if name[:1].isupper() and name.endswith(_ERRORS) and len(line) > colon + 2:
            return line[colon - len(word) :].strip()
        start = colon + 2
    return None


def _deaths(lines: list[str]) -> Iterator[str]:
    """Reports of killed processes: a phrase around one word, the process's name."""
    for begin, end in (traits.log_death for traits in BACKENDS.values() if traits.log_death):
        for line in lines:
            start, stop = line.find(begin), line.find(end)
            name = line[start + len(begin) : stop]
            if 0 <= start < stop and name and " " not in name:
                yield line[start : stop + len(end)]
