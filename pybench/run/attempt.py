"""The attempts of a session, one after another: each begun, sampled, followed, recorded."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import median

from pybench.core.metrics import metric_values
from pybench.model.container import ContainerRun
from pybench.model.errors import is_machine_fault
from pybench.model.machine import HostPart
from pybench.model.progress import Progress
from pybench.model.record import Record
from pybench.model.results import Estimate
from pybench.model.suite import Point
from pybench.model.text import os_text
from pybench.model.wire import Failure
from pybench.model.workloads.registry import METRICS
from pybench.power.measured_window import HostTrace, joined_conditions, joined_energy
from pybench.power.trace_file import write_trace
from pybench.report.run.headline import headline_of
from pybench.run.events.contract import Contract
from pybench.run.events.reader import EventReader
from pybench.run.follow import follow
from pybench.run.gpu_observation import GpuObservation, is_foreign
from pybench.run.session import Session, SessionWorker


def run_session(session: Session, progress: Progress) -> Generator[Record]:
    """Make the attempts, up to the first that fails; yields each one's record, free of secrets, when it is over.

    The worker goes on only when the next record is requested: the host disturbs no measurement in between, and
    kept records are not lost. Closing the generator ends the worker. Raises ``KeyboardInterrupt`` when
    interrupted, with the worker ended and nothing recorded of the attempt.
    """
    job = session.job
    ahead_ns = tuple(site.joined.offset_ns for site in session.sites for _ in range(job.ranks_each))
    reader = EventReader(job.exchange, job.num_processes, len(session.attempts), ahead_ns)
    worker = SessionWorker(session)
    try:
        for place in range(len(session.attempts)):
            record = _attempt(session, place, worker, reader, progress)
            if not record.ok or session.is_last(place):
                worker.end()
            clean = worker.redaction.of(record)
            # The suite's own words are no secret: with another id the attempt would be owed again without an end.
            yield replace(
                clean, point_id=record.point_id, warm_after=record.warm_after, log=record.log, trace=record.trace
            )
            if not record.ok:
                return
    finally:
        worker.end()


def _attempt(
    session: Session, place: int, session_worker: SessionWorker, reader: EventReader, progress: Progress
) -> Record:
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
        container: ContainerRun | None = None
        try:
            worker = session_worker.begin(place)
        except OSError as error:
            if is_machine_fault(error):
                raise
            failure: Failure | None = Failure(cause="launch", message=f"{session_worker.argv[0]}: {error.strerror}")
        else:
            failure = follow(session, place, worker, reader, gpus, progress)
            container = worker.container()
            failure = session.launcher.verify(container, session.job, session.log) or failure
    argv, trace = tuple(map(os_text, session_worker.argv)), None
    if gpus.trace is not None:
        write_trace(gpus.trace, folder / "trace.npz")
        trace = str((folder / "trace.npz").relative_to(session.run_path))
    over = session_worker.over_hosts
    hosts: tuple[HostPart, ...] = ()
    traces: tuple[HostTrace, ...] = (HostTrace((), gpus.trace),)
    if over is not None:
        hosts, traces = over.host_parts(session.run_path, folder, gpus.trace, session.power_reason)
    if failure is not None and over is not None and over.failed_part is not None:
        host, problem = over.failed_part
        failure = replace(failure, message=f"host {host}: {problem or failure.message}")
    failure = failure or contract.verify(ranks)
    steps = [rank.steps for rank in ranks]
    energy = None
    if failure is None and any(host.trace is not None for host in traces):
        energy = joined_energy(point, steps, traces)
    conditions = () if failure else joined_conditions(steps, traces)
    unknown = "the attempt failed" if failure else session.power_reason or "no GPU takes part"
    begun_ns = [rank.first_warmup_ns for rank in ranks if rank.first_warmup_ns is not None]
    foreign = partial(is_foreign, run_mark=session.job.run_mark, container=container)
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
        energy_reason=None if energy else unknown,
        log=str(session.log.relative_to(session.run_path)),
        trace=trace,
        argv=argv,
        container=container,
        conditions=conditions,
        health=gpus.health(foreign) if over is None else over.health(gpus.health(foreign)),
        warm_after=tuple(earlier.id for earlier, _ in session.attempts[:place]),
        hosts=hosts,
        start=session_worker.start,
        start_ns=start_ns,
        realtime_offset_ns=started_realtime_ns - start_ns,
    )


def attempt_figure(point: Point, record: Record) -> Estimate | None:
    """The median step of the attempt's headline metric; ``None`` for a failed attempt."""
    if not record.ok:
        return None
    values = metric_values(point, record)
    name = headline_of(values)
    if name is None:
        return None
    return Estimate(value=median(values[name]), low=None, high=None, unit=METRICS[name].unit)
