"""One attempt at one point: launch, watch, sample, record."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from pybench.compute.conditions import conditions_in
from pybench.compute.energy import attempt_energy, phase_energies, without_pauses
from pybench.launch.job import ORDER_FILE, ContainerLauncher, Job, Launcher
from pybench.machine.health_watch import HealthWatch
from pybench.machine.sampler import PowerSampler
from pybench.machine.trace_file import write_trace
from pybench.model.container import ContainerRun
from pybench.model.health import GpuConditions
from pybench.model.progress import Progress
from pybench.model.record import Energy, Record
from pybench.model.suite import Point
from pybench.model.trace import PowerTrace
from pybench.model.wire import Event, Failure, FailureCause, Header, Phase, Step
from pybench.model.workloads.generate import Generate
from pybench.runner.events import EventReader, RankLog
from pybench.runner.redaction import Redaction
from pybench.runner.root_cause import root_cause
from pybench.runner.worker import Worker, start_worker

_POLL_S = 0.1
_LOG_TAIL_LINES = 40
_LOG_TAIL_BYTES = 64 * 1024

# The cause nearest the root, when ranks disagree: one rank's trouble makes the others fail in a collective.
_CAUSE_ORDER: tuple[FailureCause, ...] = ("out_of_memory", "missing_package", "unsupported", "engine", "exception")


@dataclass(frozen=True, kw_only=True)
class AttemptSetup:
    """What an attempt needs besides its point. ``gpu_uuids`` are as many as the point occupies, none on a CPU.

    ``clock`` is this host's (boot id, CLOCK_MONOTONIC offset): a worker that reports another can't be joined with the
    power trace. ``power_reason`` says why power is not sampled; ``None`` when it is.
    """

    run_path: Path
    folder: Path
    job: Job
    launcher: Launcher
    clock: tuple[str, int]
    power_reason: str | None


def run_attempt(point: Point, number: int, setup: AttemptSetup, order: str, progress: Progress) -> Record:
    """Run one attempt to its record, free of secrets. A failed worker is a record too.

    Raises ``KeyboardInterrupt`` when interrupted, with the worker ended and nothing recorded.
    """
    (setup.job.exchange / ORDER_FILE).write_text(order)
    started_utc = datetime.now(UTC).isoformat(timespec="seconds")
    start_ns = time.monotonic_ns()
    log = setup.folder / "worker.log"
    argv = setup.launcher.argv(setup.job)
    redaction = Redaction(setup.job.host_environment[name] for name in setup.launcher.secrets)
    reader = EventReader(setup.job.exchange, setup.job.num_processes)
    sampler = PowerSampler(setup.job.gpu_uuids) if setup.power_reason is None and setup.job.gpu_uuids else None
    watch = HealthWatch(setup.job.gpu_uuids) if setup.job.gpu_uuids else None
    if sampler:
        sampler.start()
    container: ContainerRun | None = None
    try:
        worker = start_worker(setup.launcher, setup.job, argv, log)
    except OSError as error:
        failure: Failure | None = Failure(cause="launch", message=f"{argv[0]}: {error.strerror}")
    else:
        with watch or nullcontext():
            failure = _watch(point, worker, log, reader, sampler, progress)
        container = worker.container
    finally:
        trace = sampler.stop() if sampler else None
        redaction.files(setup.folder)
    failure = _wrong_container(container, setup, log) or failure or _distrust(reader.ranks, setup, point)
    energy, energy_reason = (None, "the attempt failed") if failure else _energy(point, reader.ranks, trace, setup)
    if trace is not None:
        write_trace(trace, setup.folder / "trace.npz")
    record = Record(
        point_id=point.id,
        point_digest=point.digest,
        attempt=number,
        started_utc=started_utc,
        duration_s=(time.monotonic_ns() - start_ns) / 1e9,
        startup_s=_startup_s(reader.ranks, start_ns),
        ranks=tuple(report for rank in reader.ranks if (report := rank.report())),
        failure=failure,
        energy=energy,
        energy_reason=energy_reason,
        log=str(log.relative_to(setup.run_path)),
        trace=str((setup.folder / "trace.npz").relative_to(setup.run_path)) if trace is not None else None,
        argv=argv,
        container=container,
        conditions=() if failure else _conditions(reader.ranks, trace),
        health=watch.health() if watch else None,
    )
    return redaction.of(record)


def _watch(
    point: Point,
    worker: Worker,
    log: Path,
    reader: EventReader,
    sampler: PowerSampler | None,
    progress: Progress,
) -> Failure | None:
    """Follow the worker to its end and say how it failed, if it did."""
    limit_s = point.effort.time_limit_s
    deadline = time.monotonic() + limit_s
    try:
        while (code := worker.wait(_POLL_S)) is None:
            for rank, event in reader.poll():
                _show(point, rank, event, len(reader.ranks[0].steps), progress)
                _anchor(sampler, rank, event)
            _show_power(sampler, progress)
            if time.monotonic() > deadline:
                worker.end()
                reader.poll()
                return _failure("time_limit", f"no result within {limit_s:g} s, {_last_seen(reader.ranks)}", log)
        reader.poll()
    except ValueError as error:
        return _failure("protocol", str(error), log)
    finally:
        # Ends ranks that outlive their launcher, and everything when interrupted.
        worker.end()
    return _verdict_of_exit(code, reader.ranks, log)


def _show(point: Point, rank: int, event: Event, num_measured: int, progress: Progress) -> None:
    if rank != 0:
        return
    if isinstance(event, Phase):
        progress.phase(event.name)
    elif isinstance(event, Step):
        measuring = event.phase == "measure"
        position = num_measured if measuring else event.index + 1
        total = point.effort.steps if measuring else point.effort.max_warmup_steps
        tokens = event.work.output_tokens or event.work.samples * getattr(point.settings, "sequence_tokens", 0)
        done, unit = (tokens, "tok/s") if tokens else (event.work.samples, "samples/s")
        progress.step(position, total, event.phase, done / event.duration_s, unit)


def _anchor(sampler: PowerSampler | None, rank: int, event: Event) -> None:
    """Have the energy counters read where the window begins and ends."""
    if sampler and rank == 0 and isinstance(event, Phase) and event.name in {"measure", "finish"}:
        sampler.anchor()


def _show_power(sampler: PowerSampler | None, progress: Progress) -> None:
    if sampler:
        watts = list(sampler.latest_power_w().values())
        progress.power(sum(w for w in watts if w is not None) if None not in watts else None)


def _verdict_of_exit(code: int, ranks: Sequence[RankLog], log: Path) -> Failure | None:
    said = sorted((r.failure for r in ranks if r.failure), key=lambda f: _CAUSE_ORDER.index(f.cause))
    killed = re.search(r"exitcode\s*: -(\d+)", _tail(log)) if code > 0 else None
    if said and not (killed and said[0].cause == "exception"):
        return root_cause(said[0], _tail(log))
    if code < 0:
        return _failure("signal", f"ended by signal {-code}, {_last_seen(ranks)}", log)
    if code > 0:
        # torchrun reports a rank's death in its log and exits 1 itself; what its siblings say is that a peer is gone.
        if killed:
            return _failure("signal", f"a rank was ended by signal {killed[1]}, {_last_seen(ranks)}", log)
        return _failure("exit_code", f"exit code {code} without a result, {_last_seen(ranks)}", log)
    if silent := [rank for rank, said_so in enumerate(ranks) if said_so.result is None]:
        return _failure("protocol", f"exit code 0, but no result from rank {silent[0]}", log)
    return None


def _wrong_container(container: ContainerRun | None, setup: AttemptSetup, log: Path) -> Failure | None:
    """Refuse what ran in no container of the engine's, or in another image than the run's."""
    planned = setup.launcher.container
    if planned is None or not isinstance(setup.launcher, ContainerLauncher):
        return None
    if container is None or container.start_s is None:
        return _failure("launch", f"{planned.engine} started no container: {_last_line(log)}", log)
    image = next(image for image in planned.images if image.backend == setup.job.backend)
    if container.image_id != image.id:
        return _failure("identity", f"image {container.image_id} ran, asked for {image.id} ({image.name})", log)
    return None


def _last_line(log: Path) -> str:
    lines = [line for line in _tail(log).splitlines() if line.strip() and not line.startswith("Run 'docker")]
    return lines[-1] if lines else "it gave no reason"


def _distrust(ranks: Sequence[RankLog], setup: AttemptSetup, point: Point) -> Failure | None:
    """Refuse a measurement whose clock, GPUs or steps are not what was asked for."""
    for rank, log in enumerate(ranks):
        header: Header | None = log.header
        if header is None:
            return Failure(cause="protocol", message=f"rank {rank} sent no header")
        if (header.boot_id, header.time_offset_ns) != setup.clock:
            return Failure(cause="protocol", message=f"rank {rank} runs on another clock than this host")
        found, asked = header.all_uuids, setup.job.gpu_uuids
        if asked and not (found and set(found) <= set(asked)):
            return Failure(
                cause="protocol",
                message=f"rank {rank} ran on {', '.join(found) or None}, asked for one of {', '.join(asked)}",
            )
        if len(log.steps) != point.effort.steps:
            message = f"rank {rank} measured {len(log.steps)} steps, asked for {point.effort.steps}"
            return Failure(cause="protocol", message=message)
    used = [log.header.device_uuid for log in ranks if log.header and setup.job.gpu_uuids]
    if twice := [uuid for uuid in used if used.count(uuid) > 1]:
        return Failure(cause="protocol", message=f"{used.count(twice[0])} ranks ran on one GPU, {twice[0]}")
    return None


def _energy(
    point: Point, ranks: Sequence[RankLog], trace: PowerTrace | None, setup: AttemptSetup
) -> tuple[Energy | None, str | None]:
    """Energy from the first measured step's start to the last one's end, over all ranks, less that of pauses."""
    if trace is None:
        return None, setup.power_reason or "no GPU takes part"
    steps = [step for rank in ranks for step in rank.steps]
    start_ns, end_ns = min(s.start_ns for s in steps), max(s.end_ns for s in steps)
    dithered = point.effort.dither_ms > 0
    period_s = _load_period_s(ranks[0].steps, dithered=dithered)
    energy = attempt_energy(trace, start_ns, end_ns, period_s)
    if dithered:
        energy = without_pauses(energy, trace, _pauses_s(ranks[0].steps))
    if isinstance(point.settings, Generate) and point.settings.is_batch:
        together = list(zip(*(rank.steps for rank in ranks), strict=True))
        energy = replace(energy, phases=phase_energies(trace, together, period_s))
    return energy, None


def _conditions(ranks: Sequence[RankLog], trace: PowerTrace | None) -> tuple[GpuConditions, ...]:
    """How each GPU stood while steps were measured."""
    steps = [step for rank in ranks for step in rank.steps]
    if trace is None:
        return ()
    return conditions_in(trace, min(step.start_ns for step in steps), max(step.end_ns for step in steps))


def _load_period_s(steps: Sequence[Step], *, dithered: bool) -> float | None:
    """Median time between decode rounds, else of steps without dither: the period a sensor may alias with."""
    rounds_s = [
        (later - earlier) / 1e9
        for step in steps
        for earlier, later in zip(step.token_end_ns, step.token_end_ns[1:], strict=False)
    ]
    gaps_s = rounds_s or ([] if dithered else [step.duration_s for step in steps])
    return sorted(gaps_s)[len(gaps_s) // 2] if gaps_s else None


def _pauses_s(steps: Sequence[Step]) -> float:
    """Time between steps, in which nothing was measured."""
    return sum((later.start_ns - earlier.end_ns) / 1e9 for earlier, later in pairwise(steps))


def _startup_s(ranks: Sequence[RankLog], start_ns: int) -> float | None:
    begun = [rank.first_warmup_ns for rank in ranks if rank.first_warmup_ns is not None]
    return (max(begun) - start_ns) / 1e9 if begun else None


def _last_seen(ranks: Sequence[RankLog]) -> str:
    first = ranks[0]
    if first.phase is None:
        return "before its first event"
    return f"last seen in phase {first.phase.name} after {len(first.steps)} measured steps"


def _failure(cause: FailureCause, message: str, log: Path) -> Failure:
    return Failure(cause=cause, message=message, detail=_tail(log))


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            return "\n".join(stream.read().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
    except OSError:
        return ""
