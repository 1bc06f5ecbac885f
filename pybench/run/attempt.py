"""A worker process and its attempts, one after another: each begun, sampled, followed, recorded."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from statistics import median

from pybench.core.metrics import metric_values
from pybench.core.schedule import Attempt, settings_of_next
from pybench.model.container import ContainerRun
from pybench.model.errors import MachineError, is_machine_fault
from pybench.model.machine import DeviceKind, HostPart
from pybench.model.progress import Progress
from pybench.model.record import ALONE, Record
from pybench.model.results import Estimate
from pybench.model.suite import Point
from pybench.model.text import os_text
from pybench.model.wire import ORDERS_FILE, SCRATCH_FOLDER, Event, Failure, Phase, Step, WorkOrder, go_file
from pybench.model.workloads.registry import METRICS
from pybench.power.measured_window import HostTrace, joined_conditions, joined_energy
from pybench.power.trace_file import write_trace
from pybench.report.run.headline import headline_of
from pybench.run.engines.base import Launch, Launcher, Meeting
from pybench.run.engines.environment import Redaction, passed_secrets
from pybench.run.engines.process import Worker, log_tail
from pybench.run.engines.starter import ForkedWorker
from pybench.run.events.contract import Contract, Site
from pybench.run.events.reader import EventReader, RankLog
from pybench.run.failure import failure_of_exit
from pybench.run.gpu_observation import GpuObservation, is_foreign
from pybench.run.hosts.gathering import Gathering
from pybench.run.hosts.worker import HostsWorker
from pybench.run.suite_plan import OutOfTimeError

_POLL_S = 0.1
_FINISH_S = 30.0
"""More than the run's time for an attempt that has all its steps: engines on H100s took up to 20 s to end."""


@dataclass(kw_only=True)
class Session:
    """A worker process and its attempts, with their work orders and folders; the first folder holds log and exchange.

    ``job`` has the GPUs of one point, none on a CPU; all points have the same number. ``sites`` are the hosts of its
    places: a worker that reports another clock can't be joined with the power trace. ``power_reason`` is why power is
    not sampled here; ``None`` when it is. At ``end_s`` of ``time.monotonic`` the run's own time is over. ``gathering``
    has the way to the other hosts of a job that spans several.
    """

    run_path: Path
    attempts: tuple[Attempt, ...]
    orders: tuple[WorkOrder, ...]
    folders: tuple[Path, ...]
    job: Launch
    launcher: Launcher
    sites: tuple[Site, ...]
    power_reason: str | None
    end_s: float = math.inf
    gathering: Gathering | None = None
    worker: Worker | None = None
    _ended: bool = False

    @property
    def log(self) -> Path:
        """Standard output and error of the process."""
        return self.folders[0] / "worker.log"

    def is_last(self, place: int) -> bool:
        """Whether the process ends after attempt ``place``."""
        return place == len(self.attempts) - 1

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """The command line that works on the orders."""
        job = self.job
        if job.spans_hosts:  # the part of the first place, with a port that is found when it starts
            host = job.places[0].host
            meeting = Meeting(num_nodes=len(job.places), node_rank=0, address=host, port=0, local_address=host)
            job = job.part(host, meeting, {})
        return tuple(self.launcher.argv(job))

    @cached_property
    def redaction(self) -> Redaction:
        """Removes the secrets that are passed to the worker."""
        passed = self.launcher.tuning(self.job.host_environment)
        return Redaction(passed_secrets(passed, self.launcher.secrets))

    def begin(self, place: int) -> Worker | Failure:
        """Let the worker begin order ``place``; the first starts it. Raises ``OSError`` for a fault of the machine."""
        job = self.job
        try:
            if self.worker is not None:
                # An existing file is the worker's: no link is followed, nothing overwritten.
                with suppress(FileExistsError):
                    os.close(os.open(job.exchange / go_file(place), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            elif not job.spans_hosts or self.gathering is None:
                self.worker = self.launcher.start(job, self.log)
            else:
                links = [self.gathering.link(each.host) for each in job.places]
                clocks = tuple(site.joined for site in self.sites)
                limit_s = self.attempts[0][0].effort.time_limit_s
                self.worker = HostsWorker(job, self.log, links, clocks, self.launcher.start, limit_s)
        except OSError as error:
            if is_machine_fault(error):
                raise
            return Failure(cause="launch", message=f"{self.argv[0]}: {error.strerror}")
        assert self.worker is not None
        return self.worker

    def end(self) -> None:
        """End the process, remove its scratch files, take secrets out of the rest; a second time does nothing."""
        if self._ended:
            return
        try:
            if self.worker is not None:
                self.worker.end()
        except MachineError:
            self._ended = True  # what could not be killed once is not waited for again
            raise
        finally:
            # A worker that was killed leaves what it would have removed itself.
            shutil.rmtree(self.job.exchange / SCRATCH_FOLDER, ignore_errors=True)
            for folder in self.folders:
                self.redaction.files(folder)
        self._ended = True


def work_order(point: Point, device: DeviceKind, records: Iterable[Record], end_ns: int | None = None) -> WorkOrder:
    """The order for the next attempt at ``point``, after ``records``; at ``end_ns`` the run's time is over."""
    effort = point.effort
    return WorkOrder(
        point_id=point.id,
        settings=settings_of_next(point, records),
        architecture=point.architecture,
        device=device,
        steps=effort.steps,
        max_warmup_steps=effort.max_warmup_steps,
        dither_ms=effort.dither_ms,
        # A collective hangs before the attempt's limit, unless the suite has another.
        collective_timeout_s=effort.collective_timeout_s or min(600.0, effort.time_limit_s * 2 / 3),
        end_ns=end_ns,
    )


def run_session(session: Session, progress: Progress) -> Generator[Record]:
    """Make the attempts, up to the first that fails; yields each one's record, free of secrets, when it is over.

    The worker goes on only when the next record is requested: the host disturbs no measurement in between, and
    kept records are not lost. Closing the generator ends the worker. Raises ``KeyboardInterrupt`` when
    interrupted, with the worker ended and nothing recorded of the attempt.
    """
    job = session.job
    ahead_ns = tuple(site.joined.offset_ns for site in session.sites for _ in range(job.ranks_each))
    reader = EventReader(job.exchange, job.num_processes, len(session.attempts), ahead_ns)
    lines = (order.to_json() + "\n" for order in session.orders)
    (job.exchange / ORDERS_FILE).write_text("".join(lines), encoding="utf-8")
    try:
        for place in range(len(session.attempts)):
            record = _attempt(session, place, reader, progress)
            if not record.ok or session.is_last(place):
                session.end()
            clean = session.redaction.of(record)
            # The suite's own words are no secret: with another id the attempt would be owed again without an end.
            yield replace(
                clean, point_id=record.point_id, warm_after=record.warm_after, log=record.log, trace=record.trace
            )
            if not record.ok:
                return
    finally:
        session.end()


def _attempt(session: Session, place: int, reader: EventReader, progress: Progress) -> Record:
    """One attempt to its record. A failed worker is a record too. Raises ``OSError`` for a fault of the machine."""
    point, number = session.attempts[place]
    folder, ranks = session.folders[place], reader.points[place]
    started_utc = datetime.now(UTC).isoformat(timespec="seconds")
    start_ns, started_realtime_ns = time.monotonic_ns(), time.time_ns()
    contract = Contract(
        order=session.orders[place], num_processes=session.job.num_processes, sites=session.sites, start_ns=start_ns
    )
    reader.begin(place, contract.check)
    with GpuObservation(session.job.gpu_uuids, with_power=session.power_reason is None) as gpus:
        container, failure = _run_worker(session, place, reader, gpus, progress)
    argv, trace = tuple(map(os_text, session.argv)), None
    if gpus.trace is not None:
        write_trace(gpus.trace, folder / "trace.npz")
        trace = str((folder / "trace.npz").relative_to(session.run_path))
    hosts: tuple[HostPart, ...] = ()
    traces: tuple[HostTrace, ...] = (HostTrace((), gpus.trace),)
    if isinstance(session.worker, HostsWorker):
        hosts, traces = session.worker.host_parts(session.run_path, folder, gpus.trace, session.power_reason)
        if failure is not None and session.worker.failed_part is not None:
            host, problem = session.worker.failed_part
            failure = replace(failure, message=f"host {host}: {problem or failure.message}")
    failure = failure or contract.verify(ranks)
    steps = [rank.steps for rank in ranks]
    traced = failure is None and any(host.trace is not None for host in traces)
    energy = joined_energy(point, steps, traces) if traced else None
    conditions = () if failure else joined_conditions(steps, traces)
    no_energy = "the attempt failed" if failure else session.power_reason or "no GPU takes part"
    begun_ns = [rank.first_warmup_ns for rank in ranks if rank.first_warmup_ns is not None]
    foreign = partial(is_foreign, run_mark=session.job.run_mark, container=container)
    health = gpus.health(foreign)
    return Record(
        point_id=point.id,
        point_digest=point.digest,
        attempt=number,
        started_utc=started_utc,
        duration_s=(time.monotonic_ns() - start_ns) / 1e9,
        startup_s=(max(begun_ns) - start_ns) / 1e9 if begun_ns and not place else None,
        ranks=tuple(report for rank in ranks if (report := rank.report())),
        failure=failure,
        energy=energy,
        energy_reason=None if energy else no_energy,
        log=str(session.log.relative_to(session.run_path)),
        trace=trace,
        argv=argv,
        container=container,
        conditions=conditions,
        health=session.worker.health(health) if isinstance(session.worker, HostsWorker) else health,
        warm_after=tuple(earlier.id for earlier, _ in session.attempts[:place]),
        hosts=hosts,
        start=session.worker.start if isinstance(session.worker, ForkedWorker) else ALONE,
        start_ns=start_ns,
        realtime_offset_ns=started_realtime_ns - start_ns,
    )


def _run_worker(
    session: Session, place: int, reader: EventReader, gpus: GpuObservation, progress: Progress
) -> tuple[ContainerRun | None, Failure | None]:
    """The container of the worker that did order ``place``, and how the attempt failed, if it did."""
    worker = session.begin(place)
    if isinstance(worker, Failure):
        return None, worker
    failure = follow(session, place, worker, reader, gpus, progress)
    container = worker.container()
    return container, session.launcher.verify(container, session.job, session.log) or failure


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
    rows = (line.split() for line in lines)
    return next((int(words[1]) for words in rows if len(words) == 2 and words[0] == "oom_kill"), None)  # noqa: PLR2004


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


def attempt_figure(point: Point, record: Record) -> Estimate | None:
    """The median step of the attempt's headline metric; ``None`` for a failed attempt."""
    if not record.ok:
        return None
    values = metric_values(point, record)
    name = headline_of(values)
    if name is None:
        return None
    return Estimate(value=median(values[name]), low=None, high=None, unit=METRICS[name].unit)
