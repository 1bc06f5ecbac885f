"""How an attempt failed, by what its worker reported, how it ended, and what its log names.

A log is untrusted: every search here takes time in proportion to its length.
"""

from __future__ import annotations

import re
import resource
import signal
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pybench.model.backend import BACKENDS, is_out_of_memory, without_allocator
from pybench.model.text import plural
from pybench.model.wire import Failure, FailureCause
from pybench.run.engines.process import log_tail
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

# The cause nearest the root, when ranks disagree: one rank's trouble makes the others fail in a collective.
_CAUSE_ORDER: tuple[FailureCause, ...] = (
    "out_of_memory",
    "missing_package",
    "unsupported",
    "engine",
    "wrong_result",
    "collective_timeout",
    "exception",
)


def failure(cause: FailureCause, message: str, log: Path) -> Failure:
    """A failure whose detail is the end of the worker's log."""
    return Failure(cause=cause, message=message, detail=log_tail(log))


def failure_of_exit(code: int, ranks: Sequence[RankLog], log: Path, oom_kills: int = 0) -> Failure | None:
    """What exit code (negative: signal) and events of an ended worker show of its last attempt.

    ``oom_kills`` are processes that the kernel ended meanwhile as the host's memory ran out. That, and an allocation
    that failed under a limit, is one cause, ``host_memory``, however the worker ended.
    """
    killed = _killing_signal(log_tail(log)) if code > 0 else None
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


def _by_exit(code: int, killed: int | None, ranks: Sequence[RankLog], log: Path) -> Failure | None:
    reported = sorted((r.failure for r in ranks if r.failure), key=lambda f: _CAUSE_ORDER.index(f.cause))
    if reported and not (killed and reported[0].cause == "exception"):
        return root_cause(reported[0], log_tail(log))
    if code < 0:
        return failure("signal", f"ended by signal {-code}, {last_seen(ranks)}", log)
    if code > 0:
        # The launcher reports a rank's death in its log and exits with 1; other ranks report only that a peer is gone.
        if killed:
            return failure("signal", f"a rank was ended by signal {killed}, {last_seen(ranks)}", log)
        return failure("exit_code", f"exit code {code} without a result, {last_seen(ranks)}", log)
    if silent := [rank for rank, log_of_rank in enumerate(ranks) if log_of_rank.result is None]:
        return failure("protocol", f"exit code 0, but no result from rank {silent[0]}", log)
    return None


def _killing_signal(log: str) -> int | None:
    """Signal that ended a rank, by the launcher's report, whose last line is the first failure.

    SIGTERM counts there alone: with it the launcher ends the ranks that a failed one leaves behind.
    """
    codes = [int(code) for code in _EXIT_CODE.findall(log)]
    signals = [-code for code in codes if code < 0 and (code == codes[-1] or code != -signal.SIGTERM)]
    return signals[-1] if signals else None


def last_seen(ranks: Sequence[RankLog]) -> str:
    """How far the first rank came."""
    first = ranks[0]
    if first.phase is None:
        return "before its first event"
    return f"last seen in phase {first.phase.name} after {len(first.steps)} measured steps"


_WORD = string.ascii_letters + string.digits + "_."
_ERRORS = ("Error", "Exception", "Exit")
_LOG_WORDS = tuple(traits.log_words for traits in BACKENDS.values())
# Errors that report another error: those of engines, and the worker's own.
_ECHOES = ("EngineError", *(echo for words in _LOG_WORDS for echo in (*words.not_started, *words.echoes)))
_MAX_WORDS = 400


def root_cause(failure: Failure, log: str) -> Failure:
    """``failure`` with the engine's last own error in its message, and as out of memory where that error is one."""
    if failure.cause != "engine":
        return failure
    lines = log.splitlines()
    reported = [error for line in lines if (error := _error(line))]
    errors = [error for error in reported if not any(echo in error for echo in _ECHOES)]
    memory = next((error for error in errors if is_out_of_memory(error)), None)
    # A process's death explains the errors that follow it.
    cause = memory or next(_deaths(lines), None) or next(reversed(errors), None)
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
    for begin, end in (words.death for words in _LOG_WORDS if words.death):
        for line in lines:
            start, stop = line.find(begin), line.find(end)
            name = line[start + len(begin) : stop]
            if 0 <= start < stop and name and " " not in name:
                yield line[start : stop + len(end)]
