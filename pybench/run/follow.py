"""Watch a worker from the beginning of an attempt to its end."""

from __future__ import annotations

import time

from pybench.machine.health_watch import num_oom_kills
from pybench.model.progress import Progress
from pybench.model.suite import Point
from pybench.model.wire import Event, Failure, Phase, Step, Work
from pybench.run.engines.base import Worker
from pybench.run.events.reader import EventReader, RankLog
from pybench.run.failure import failure, failure_of_exit, last_seen
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
    if not isinstance(ended, int):
        return ended
    oom_kills = (num_oom_kills() or 0) - (killed_before or 0)
    return failure_of_exit(ended, reader.points[place], session.log, oom_kills)


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
                progress.power(_power_w(worker, gpus))
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
                return failure("time_limit", f"{what} within {limit_s:g} s, {last_seen(ranks)}", session.log)
        for rank, event in reader.poll():
            _show(point, rank, event, ranks, progress)
    except ValueError as error:
        return failure("protocol", str(error), session.log)
    # A worker that ended after it reported everything fails the attempt that it should have continued with.
    return None if not session.is_last(place) and _all_reported(ranks) else code


def _power_w(worker: Worker, gpus: GpuObservation) -> float | None:
    """Newest power of all GPUs together, also those of other hosts; ``None`` where one's is unknown."""
    own_w = gpus.power_w()
    others_w = worker.power_w() if isinstance(worker, HostsWorker) else 0.0
    return None if own_w is None or others_w is None else own_w + others_w


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
        done, unit = _done(point, event.work)
        replicas = len({log.header.replica for log in ranks if log.header})
        progress.step(position, total, event.phase, done * replicas / event.duration_s, unit)


def _done(point: Point, work: Work) -> tuple[int, str]:
    """A step's work in the unit of its rate; a node check has steps alone."""
    tokens = work.output_tokens or work.samples * getattr(point.settings, "sequence_tokens", 0)
    if tokens:
        return tokens, "tok/s"
    return (work.samples, "samples/s") if work.samples else (1, "steps/s")
