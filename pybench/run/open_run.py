"""A run whose folder is locked: its attempts are made, one worker process after another."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pybench.core.schedule import Attempt, by_decision, in_time, next_session, pending, undecided, unknown
from pybench.files.run.folder import RunFolder
from pybench.machine.disk import reports_full_disk, require_room, scratch_folder
from pybench.machine.environment import host_clock
from pybench.model.backend import BACKENDS
from pybench.model.errors import MachineError
from pybench.model.machine import Place
from pybench.model.manifest import Manifest
from pybench.model.progress import Progress
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.servers import image_backend
from pybench.model.suite import Point
from pybench.model.text import plural
from pybench.model.tuning import variables_of
from pybench.report.formats import REPORT_FILES
from pybench.run.attempt import attempt_figure, run_session
from pybench.run.engines.base import Launch, Launcher, engine_error, get_engine
from pybench.run.engines.local import Local
from pybench.run.events.contract import Site
from pybench.run.hosts.gathering import Gathering
from pybench.run.hosts.link import HostLostError
from pybench.run.session import Session, work_order
from pybench.run.time_budget import OutOfTimeError, TimeBudget, attempts_s, durations_s, kept_attempts_s

_MOST_NAMED = 4


@dataclass
class OpenRun:
    """A run with its ``records``, ``budget`` of time and, if it has one, folder of ``compiled`` code."""

    folder: RunFolder
    manifest: Manifest
    launcher: Launcher
    records: list[Record]
    progress: Progress
    budget: TimeBudget
    judge: Callable[[Sequence[Record]], Results]
    gathering: Gathering | None = None
    compiled: Path | None = None
    _earlier_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.budget.is_limited:
            self._earlier_s = durations_s(self.folder, self.manifest, self.pending(), self.records)

    def pending(self) -> tuple[Attempt, ...]:
        """Attempts that the plan still owes."""
        return pending(self.manifest.plan.points, self.records)

    def owed(self) -> tuple[Attempt, ...]:
        """Owed attempts that fit the time limit, in deciding order; all without a limit."""
        owed = self.pending()
        if not self.budget.is_limited:
            return owed
        has_rates = any(benchmark.gives_rates for benchmark in self.manifest.suite.benchmarks)
        rows = self.judge(self.records).rows
        kept_s = kept_attempts_s(self.manifest.suite.name, self.manifest.plan, self.manifest.machine)
        return self._in_time(by_decision(owed, rows, {**kept_s, **self._attempts_s()}, has_rates=has_rates))

    def measure_owed(self) -> None:
        """Make every attempt that is owed."""
        self._name_unknown()
        while owed := self.owed():
            self.measure_next(owed)
        self.note_left_out(self.pending(), "")

    def _name_unknown(self) -> None:
        """Name the points of which no earlier attempt shows whether they fit the time, unless they are all."""
        if self.budget.is_limited and (names := unknown(self.manifest.plan, self._attempts_s())):
            unshown = f"{self.budget.limit}: no earlier run here shows how long"
            if len(names) == len(self.manifest.plan.points):
                self.progress.note(f"{unshown} a point takes; what does not fit is left out")
                return
            some = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
            self.progress.note(f"{unshown} {len(names)} point{'s take' if len(names) > 1 else ' takes'}: {some}")

    def decide(self) -> None:
        """Add attempts while a verdict is inconclusive and its points' budget lasts."""
        while extra := undecided(self.manifest.plan.points, self.judge(self.records).rows, self.records):
            if not self._in_time(extra):
                owed = self.pending()
                self.note_left_out([attempt for attempt in extra if attempt not in owed], "inconclusive; ")
                return
            self.progress.note(f"inconclusive: {plural(len(extra), 'more attempt')}")
            while extra := self._in_time(extra):
                before = len(self.records)
                self.measure_next(extra)
                extra = extra[len(self.records) - before :]

    def note_left_out(self, attempts: Sequence[Attempt], why: str) -> None:
        """Name the points of attempts that there is no time for."""
        if attempts:
            self.progress.note(f"{why}{self.budget.left_out_note(attempts)}")

    def _attempts_s(self) -> dict[str, float]:
        """Seconds of an attempt by the digest of its point, where one was made here."""
        return {**self._earlier_s, **attempts_s(self.records)}

    def _in_time(self, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
        if not self.budget.is_limited:
            return tuple(attempts)
        return in_time(attempts, self._attempts_s(), self.budget.left_s)

    def measure_next(self, owed: Sequence[Attempt]) -> None:
        """Make the first of ``owed`` and those its process can make, up to the first that fails."""
        attempts = next_session(owed, self.records)
        total = len(self.records) + len(owed)
        with closing(run_session(self._session(attempts), self.progress)) as measured:
            for point, number in attempts:
                if not self._in_time(((point, number),)):
                    return
                self.progress.attempt_started(point.id, number, len(self.records) + 1, total)
                require_room(self.folder.path, ATTEMPT_BYTES)
                try:
                    record = next(measured)
                except HostLostError as error:
                    lost = f"{error}; it was lost in {point.id} attempt {number}"
                    kept = plural(len(self.records), "attempt")
                    again = resume_command(self.folder.path, self.launcher, "--rendezvous", "HOST:PORT", "--nodes", "N")
                    raise MachineError(f"{lost} ({kept} kept); once it is back, on every host: {again}") from error
                except OutOfTimeError:
                    self.progress.note(f"{point.id} attempt {number}: ended, {self.budget.limit} is over")
                    return
                blame_machine(record, self.launcher, self.folder.path)
                # If this runner is killed, no report of an earlier part is left to contradict the journal.
                self.folder.remove_reports(REPORT_FILES.values())
                self.folder.journal.append(record)
                self.records.append(record)
                failure = record.failure
                outcome = f"{failure.cause}: {failure.message}" if failure else "ok"
                self.progress.attempt_finished(point.id, outcome, failure is None, attempt_figure(point, record))
                if failure:
                    return

    def _session(self, attempts: tuple[Attempt, ...]) -> Session:
        folders = tuple(self.folder.fresh_attempt(point.id, number) for point, number in attempts)
        exchange = folders[0] / "exchange"
        exchange.mkdir()
        job = self._job(attempts[0][0], exchange)
        device, end_ns = self.manifest.device, self.budget.end_ns
        sites: tuple[Site, ...] = (Site(clock=host_clock(), gpu_uuids=job.gpu_uuids),)
        if self.gathering is not None and job.spans_hosts:
            own = {host.name: host.clock for host in self.gathering.hosts}
            joined = zip(job.places, self.gathering.clocks(job.places), strict=True)
            sites = tuple(Site(clock=own[p.host], gpu_uuids=p.gpu_uuids, joined=clock) for p, clock in joined)
        return Session(
            run_path=self.folder.path,
            attempts=attempts,
            orders=tuple(work_order(point, device, self.records, end_ns) for point, _ in attempts),
            folders=folders,
            job=job,
            launcher=self.launcher,
            sites=sites,
            power_reason=self.manifest.power_reason,
            end_s=self.budget.end_s,
            gathering=self.gathering,
        )

    def _job(self, point: Point, exchange: Path) -> Launch:
        nodes, each = point.settings.num_nodes, point.settings.num_gpus_per_node
        is_here, on_gpus = nodes == 1, self.manifest.device == "cuda"
        gpus = tuple(gpu.uuid for gpu in self.manifest.machine.gpus[:each])
        places: tuple[Place, ...] = (Place(gpu_uuids=gpus if on_gpus else ()),)
        if self.gathering is not None and not is_here:
            places = self.gathering.places(nodes, each, on_gpus=on_gpus)
        return Launch(
            stage=self.folder.worker,
            exchange=exchange,
            backend=image_backend(point.settings),
            num_processes=BACKENDS[point.settings.backend].num_processes(point.settings),
            places=places,
            host=self.gathering.lead.name if self.gathering and not is_here else "",
            token=f"{self.folder.mark}/{secrets.token_hex(8)}",
            host_environment={**os.environ, **variables_of(point.settings.environment)},
            # Other hosts do not see this one's folder.
            compiled=folder_of(point.settings.backend, self.compiled) if self.compiled and is_here else None,
        )


@contextmanager
def compiled_code() -> Iterator[Path | None]:
    """The folder of one run, ``None`` where the disk for temporary files takes none or runs no code."""
    with ExitStack() as held:
        folder = None
        with suppress(OSError):
            made = held.enter_context(scratch_folder("pybench-compiled-"))
            folder = None if os.statvfs(made).f_flag & os.ST_NOEXEC else made
        yield folder


def folder_of(backend: str, folder: Path) -> Path | None:
    """A backend's below a run's, made where there is none; ``None`` where that can't be."""
    path = folder / backend
    with suppress(OSError):
        path.mkdir(exist_ok=True)
        return path
    return None


# An attempt's log, events, trace and record take some MiB at most.
ATTEMPT_BYTES = 4 * 2**20


def resume_command(run: Path, launcher: Launcher, *further: str) -> str:
    """The command that finishes a run with the workers' Python that began it, to copy; ``further`` are options."""
    python = launcher.python if isinstance(launcher, Local) else sys.executable
    named = () if python == sys.executable else ("--python", python)
    return shlex.join(("pybench", "run", "--resume", str(run), *further, *named))


def resume_remedy(run: Path, launcher: Launcher) -> tuple[str, str]:
    """For a run on a faulty disk: nothing is lost, and the command after the repair."""
    return "nothing recorded is lost", f": {resume_command(run, launcher)}"


def blame_machine(record: Record, launcher: Launcher, run: Path) -> None:
    """Raise ``MachineError``, or a faulty disk's ``OSError``, when a failed attempt was caused by the machine."""
    if record.failure is None:
        return
    require_room(run, ATTEMPT_BYTES)
    if launcher.container is None or record.failure.cause != "launch":
        return
    facts = get_engine(launcher.name).find()
    if facts.reason:
        raise MachineError(f"{facts.reason}; start it, then: {resume_command(run, launcher)}")
    if reports_full_disk(record.failure.message):
        raise engine_error(launcher.name, facts.data_root, "can't start a container", record.failure.message)
