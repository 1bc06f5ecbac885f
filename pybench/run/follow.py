"""Watch a worker from the beginning of an attempt to its end, and tell how the attempt failed.

A log is untrusted: every search here takes time in proportion to its length.
"""

from __future__ import annotations

import re
import resource
import signal
import string
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pybench.model.backend import BACKENDS, is_out_of_memory, without_allocator
from pybench.model.progress import Progress
from pybench.model.suite import Point
from pybench.model.text import plural
from pybench.model.wire import Event, Failure, FailureCause, Phase, Step
from pybench.run.engines.process import Worker, log_tail
from pybench.run.events.reader import EventReader, RankLog
from pybench.run.gpu_observation import GpuObservation
from pybench.run.hosts.worker import HostsWorker
from pybench.run.session import Session
from pybench.run.time_budget import OutOfTimeError

_POLL_S = 0.1
_FINISH_S = 30.0
"""More than the run's time for an attempt that has all its steps: engines on H100s took up to 20 s to end."""


def follow(
    session: Session, place: int, worker: Worker, reader: EventReader, gpus: GpuObservation, progress: Progress
) -> Failure | None:
    """How the attempt failed, if it did. The worker has ended then, and after the session's last attempt.

    Raises ``OutOfTimeError`` with the worker ended when the run's time is over before every rank has all its steps, or
    30 s over before every result is there.
    """
    goes_on = False
    killed_before = num_oom_kills()
    try:
        ended = _until_over(session, place, worker, reader, gpus, progress)
        goes_on = ended is None
    finally:
        if not goes_on:
            # Ends ranks that outlive their launcher, and everything when interrupted.
            worker.end()
    if isinstance(ended, int):
        oom_kills = (num_oom_kills() or 0) - (killed_before or 0)
        return failure_of_exit(ended, reader.points[place], log_tail(session.log), oom_kills)
    return ended and replace(ended, detail=log_tail(session.log))


def num_oom_kills(path: Path = Path("/proc/vmstat")) -> int | None:
    """Processes that the kernel ended for want of memory since the host started; ``None`` before Linux 4.13."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = (line.split() for line in lines)
    return next((int(words[1]) for words in found if len(words) == 2 and words[0] == "oom_kill"), None)  # noqa: PLR2004


def _until_over(
    session: Session, place: int, worker: Worker, reader: EventReader, gpus: GpuObservation, progress: Progress
) -> Failure | int | None:
    """A failure that the host decides, the worker's exit code, or ``None`` when another attempt follows.

    The code is 0, too, where the run's time is over and the worker has reported everything but not ended yet.
    """
    point, ranks = session.attempts[place][0], reader.points[place]
    limit_s = point.effort.time_limit_s
    deadline = time.monotonic() + limit_s
    try:
        while (code := worker.wait(_POLL_S)) is None:
            for rank, event in reader.poll():
                _show(point, rank, event, ranks, progress)
                gpus.note(rank, event)
            if gpus.samples_power:
                own_w = gpus.power_w()
                others_w = worker.power_w() if isinstance(worker, HostsWorker) else 0.0
                progress.power(None if own_w is None or others_w is None else own_w + others_w)
            if not session.is_last(place) and _all_reported(ranks):
                return None
            if time.monotonic() > session.end_s and _all_reported(ranks):
                return 0
            finish = all(log.phase is not None and log.phase.name == "finish" for log in ranks)
            if time.monotonic() > session.end_s + (_FINISH_S if finish else 0.0):
                raise OutOfTimeError
            if time.monotonic() > deadline:
                worker.end()
                reader.poll()
                what = "did not end" if _all_reported(ranks) else "no result"
                return Failure(cause="time_limit", message=f"{what} within {limit_s:g} s, {ranks[0].reached}")
        for rank, event in reader.poll():
            _show(point, rank, event, ranks, progress)
    except ValueError as error:
        return Failure(cause="protocol", message=str(error))
    # A worker that ended after it reported everything fails the attempt that it should have continued with.
    return None if not session.is_last(place) and _all_reported(ranks) else code


def _all_reported(ranks: list[RankLog]) -> bool:
    return all(log.result is not None for log in ranks)


def _show(point: Point, rank: int, event: Event, ranks: list[RankLog], progress: Progress) -> None:
    """Show what rank 0 reports, times the number of replicas: each reports its own work."""
    if rank != 0:
        return
    if isinstance(event, Phase):
        progress.phase(event.name)
    elif isinstance(event, Step):
        measuring = event.phase == "measure"
        position = len(ranks[0].steps) if measuring else event.index + 1
        total = point.effort.steps if measuring else point.effort.max_warmup_steps
        samples = event.work.samples
        done, unit = (samples, "samples/s") if samples else (1, "steps/s")  # a node check has steps alone
        if tokens := event.work.output_tokens or samples * getattr(point.settings, "sequence_tokens", 0):
            done, unit = tokens, "tok/s"
        replicas = len({log.header.replica for log in ranks if log.header})
        progress.step(position, total, event.phase, done * replicas / event.duration_s, unit)


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
    reported = sorted((r.failure for r in ranks if r.failure), key=lambda f: _CAUSE_ORDER.index(f.cause))
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
