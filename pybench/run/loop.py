"""The loop over attempts: what is owed, then what could still decide a verdict; one worker process after another."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.core.schedule import Attempt, by_decision, by_likeness, in_time, next_session, pending, undecided, unknown
from pybench.files.run.folder import RunFolder
from pybench.files.run.manifest_rules import require_planned
from pybench.machine.device_lock import locked_devices
from pybench.machine.disk import disk_error, reports_full_disk, require_room, scratch_folder
from pybench.machine.environment import host_clock
from pybench.machine.gpu_processes import look_once
from pybench.machine.signals import signals_interrupt
from pybench.model.backend import BACKENDS
from pybench.model.errors import MachineError
from pybench.model.machine import Place
from pybench.model.manifest import Manifest
from pybench.model.progress import Progress
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.servers import image_backend
from pybench.model.text import plural
from pybench.model.tuning import variables_of
from pybench.model.verdict import Prediction
from pybench.report.formats import REPORT_FILES
from pybench.run.attempt import Session, attempt_figure, run_session, work_order
from pybench.run.engines.base import Launch, Launcher, engine_error, get_engine
from pybench.run.engines.local import Local
from pybench.run.events.contract import Site
from pybench.run.gpu_observation import is_foreign
from pybench.run.hosts.gathering import Gathering
from pybench.run.hosts.messages import HostLostError
from pybench.run.suite_plan import (
    OutOfTimeError,
    TimeBudget,
    attempts_s,
    earlier_attempts_s,
    kept_attempts_s,
    most_gpus,
)

Predictor = Callable[[RunFolder, Manifest, Measurements], tuple[Prediction, ...]]

# An attempt's log, events, trace and record take some MiB at most.
ATTEMPT_BYTES = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run in its folder: planned, perhaps begun. Over several hosts this one leads the ``gathering``.

    ``predict`` gives the predictions that judge speedups without a row of a table; ``None`` for none. ``wait_s`` is how
    long another run on the same GPUs is waited for; ``None`` without end. ``is_new``: nothing was measured before.
    """

    folder: RunFolder
    manifest: Manifest
    launcher: Launcher
    gathering: Gathering | None = None
    predict: Predictor | None = None
    wait_s: float | None = None
    is_new: bool = False

    def results(self) -> Results:
        """Judge the records so far, and keep the predictions in the manifest."""
        manifest, measurements = self.predicted(self.folder.journal.records())
        if manifest.predictions != self.folder.read_manifest().predictions:
            self.folder.write_manifest(manifest)
        return assemble(manifest, measurements)

    def predicted(self, records: Sequence[Record]) -> tuple[Manifest, Measurements]:
        """The measurements of ``records``, and the manifest with the predictions by them."""
        measurements = Measurements.of(self.manifest.plan, records)
        if self.predict is None:
            return self.manifest, measurements
        predictions = self.predict(self.folder, self.manifest, measurements)
        return replace(self.manifest, predictions=predictions), measurements

    def finish(self, progress: Progress) -> Results:
        """Measure all that is owed, then what is undecided, and judge it.

        Raises ``KeyboardInterrupt`` on Ctrl-C, SIGTERM or SIGHUP, ``MachineError`` on a faulty disk or an engine that
        went down: workers are ended by then and everything measured is kept.
        """
        with (
            signals_interrupt(),
            self.devices(progress),
            self.held() as records,
            self.opened(records, progress, TimeBudget(self.manifest.options.time_limit_s)) as opened,
        ):
            indices = {gpu.uuid: gpu.index for gpu in self.manifest.machine.gpus}
            for process, facts in look_once(self.uuids()):
                if is_foreign(facts, self.folder.mark, None):
                    on_gpu = f"GPU {indices[process.uuid]}: process {process} is on it"
                    progress.note(f"{on_gpu}; beside it no scaling row passes")
            try:
                owed, points = opened.pending(), self.manifest.plan.points
                takes_s = opened.expected_s(owed)
                progress.run_started(self.folder.run_id, str(self.folder.path), points, len(owed), takes_s)
                opened.measure_owed()
                opened.decide()
            finally:
                progress.finished()
        return self.results()

    @contextmanager
    def held(self) -> Iterator[list[Record]]:
        """Hold the run's folder, end workers of a killed runner; gives the records, complete on disk at the end."""
        with self.disk_error(), self.folder.lock():
            # A runner that was killed may have left workers that still hold GPUs.
            self.launcher.remove_leftovers(self.folder.mark)
            records = list(self.folder.journal.records())
            require_planned(self.folder.path, self.manifest, records)
            yield records
            if records:
                self.folder.journal.require_complete()

    @contextmanager
    def opened(self, records: list[Record], progress: Progress, budget: TimeBudget) -> Iterator[OpenRun]:
        """To make attempts beside those in ``records``; the folder must be locked."""
        with closing(self.launcher), compiled_code() as compiled:
            yield OpenRun(self, records, progress, budget, compiled)

    @contextmanager
    def devices(self, progress: Progress, *beside: Run) -> Iterator[None]:
        """Hold every device of the run, once it is free. Raises ``MachineError``; new runs' folders go then."""
        owner = f"process {os.getpid()}, {self.folder.path}"
        with ExitStack() as held:
            try:
                held.enter_context(locked_devices(self.uuids(), owner, progress.note, self.wait_s))
            except MachineError:
                for run in (self, *beside):
                    if run.is_new:
                        shutil.rmtree(run.folder.path, ignore_errors=True)
                raise
            yield

    def uuids(self) -> tuple[str, ...]:
        """Every GPU that a point may run on."""
        most = most_gpus(self.manifest.plan)
        return tuple(gpu.uuid for gpu in self.manifest.machine.gpus[:most]) if self.manifest.device == "cuda" else ()

    def resume_command(self) -> str:
        """The command that finishes it with the workers' Python that began it, to copy, on every host of the run."""
        python = self.launcher.python if isinstance(self.launcher, Local) else sys.executable
        named = () if python == sys.executable else ("--python", python)
        hosts = () if self.gathering is None else self.gathering.hosts
        meeting = ("--rendezvous", "HOST:PORT", "--nodes", str(len(hosts))) if hosts else ()
        return shlex.join(("pybench", "run", "--resume", str(self.folder.path), *meeting, *named))

    def disk_error(self) -> AbstractContextManager[None]:
        """Name a faulty disk, by ``MachineError``: nothing is lost, and the command after the repair."""
        return disk_error(self.folder.path, "nothing recorded is lost", f": {self.resume_command()}")

    def blame_machine(self, record: Record) -> None:
        """Raise ``MachineError``, or a faulty disk's ``OSError``, when a failed attempt was caused by the machine."""
        if record.failure is None:
            return
        require_room(self.folder.path, ATTEMPT_BYTES)
        if self.launcher.container is None or record.failure.cause != "launch":
            return
        facts = get_engine(self.launcher.name).find()
        if facts.reason:
            raise MachineError(f"{facts.reason}; start it, then: {self.resume_command()}")
        if reports_full_disk(record.failure.message):
            raise engine_error(self.launcher.name, facts.data_root, "can't start a container", record.failure.message)


_MOST_NAMED = 4


@dataclass
class OpenRun:
    """A run whose folder is locked: its ``records``, ``budget`` of time and, if any, folder of ``compiled`` code."""

    run: Run
    records: list[Record]
    progress: Progress
    budget: TimeBudget
    compiled: Path | None = None

    def pending(self) -> tuple[Attempt, ...]:
        """Attempts that the plan still owes."""
        return pending(self.run.manifest.plan.points, self.records)

    def expected_s(self, owed: Sequence[Attempt]) -> float | None:
        """Seconds that ``owed`` will take; ``None`` where one of the points was never measured on this machine."""
        known = self._attempts_s()
        seconds = [known[point.digest] for point, _ in owed if point.digest in known]
        return sum(seconds) if seconds and len(seconds) == len(owed) else None

    def owed(self) -> tuple[Attempt, ...]:
        """Owed attempts that fit the time limit, in deciding order; all without a limit.

        A point that was never measured takes as long as one like it; once nothing else fits, it is tried anyway.
        """
        owed, manifest = self.pending(), self.run.manifest
        if not self.budget.is_limited:
            return owed
        has_rates = any(benchmark.gives_rates for benchmark in manifest.suite.benchmarks)
        kept_s = kept_attempts_s(manifest.suite.name, manifest.plan, manifest.machine)
        rows = assemble(*self.run.predicted(self.records)).rows
        likely_s = by_likeness(manifest.plan.points, self._attempts_s())
        order = by_decision(owed, rows, kept_s | likely_s, has_rates=has_rates)
        return in_time(order, likely_s, self.budget.left_s) or self._in_time(order)

    def measure_owed(self) -> None:
        """Make every attempt that is owed. Points of which no earlier attempt shows whether they fit are named."""
        plan = self.run.manifest.plan
        if self.budget.is_limited and (names := unknown(plan, self._attempts_s())):
            some = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
            which = f"{len(names)} point{'s take' if len(names) > 1 else ' takes'}: {some}"
            if len(names) == len(plan.points):
                which = "a point takes; what does not fit is left out"
            self.progress.note(f"{self.budget.limit}: no earlier run here shows how long {which}")
        while owed := self.owed():
            self.measure_next(owed)
        self.note_left_out(self.pending(), "")

    def decide(self) -> None:
        """Add attempts while a verdict is inconclusive and its points' budget lasts."""
        points, num_made = self.run.manifest.plan.points, len(self.records)
        while extra := undecided(points, assemble(*self.run.predicted(self.records)).rows, self.records):
            if not self._in_time(extra):
                owed = self.pending()
                self.note_left_out([attempt for attempt in extra if attempt not in owed], "inconclusive; ")
                return
            if len(self.records) == num_made:
                self.progress.note("inconclusive: undecided points get more attempts, up to their max_attempts")
            while extra := self._in_time(extra):
                before = len(self.records)
                self.measure_next(extra)
                extra = extra[len(self.records) - before :]

    def note_left_out(self, attempts: Sequence[Attempt], why: str) -> None:
        """Name the points of attempts that there is no time for."""
        if attempts:
            self.progress.note(f"{why}{self.budget.left_out_note(attempts)}")

    @cached_property
    def _earlier_s(self) -> dict[str, float]:
        manifest, path = self.run.manifest, self.run.folder.path
        known = attempts_s(self.records)
        return earlier_attempts_s(path.parent, manifest.suite.name, manifest.fingerprint, manifest.plan, path, known)

    def _attempts_s(self) -> dict[str, float]:
        """Seconds of an attempt by the digest of its point, where one was made here."""
        return {**self._earlier_s, **attempts_s(self.records)}

    def _in_time(self, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
        if not self.budget.is_limited:
            return tuple(attempts)
        return in_time(attempts, self._attempts_s(), self.budget.left_s)

    def measure_next(self, owed: Sequence[Attempt]) -> None:
        """Make the first of ``owed`` and those its process can make, up to the first that fails."""
        folder = self.run.folder
        attempts = next_session(owed, self.records)
        total = len(self.records) + len(owed)
        with closing(run_session(self._session(attempts), self.progress)) as measured:
            for point, number in attempts:
                if not self._in_time(((point, number),)):
                    return
                self.progress.attempt_started(point.id, number, len(self.records) + 1, total)
                require_room(folder.path, ATTEMPT_BYTES)
                try:
                    record = next(measured)
                except HostLostError as error:
                    lost = f"{error}; it was lost in {point.id} attempt {number}"
                    kept = plural(len(self.records), "attempt")
                    again = self.run.resume_command()
                    raise MachineError(f"{lost} ({kept} kept); once it is back, on every host: {again}") from error
                except OutOfTimeError:
                    self.progress.note(f"{point.id} attempt {number}: ended, {self.budget.limit} is over")
                    return
                self.run.blame_machine(record)
                # If this runner is killed, no report of an earlier part is left to contradict the journal.
                folder.remove_reports(REPORT_FILES.values())
                folder.journal.append(record)
                self.records.append(record)
                failure = record.failure
                outcome = f"{failure.cause}: {failure.message}" if failure else "ok"
                self.progress.attempt_finished(point.id, outcome, failure is None, attempt_figure(point, record))
                if failure:
                    return

    def _session(self, attempts: tuple[Attempt, ...]) -> Session:
        """The worker process of ``attempts``, which all have the first one's GPUs."""
        folder, manifest, gathering = self.run.folder, self.run.manifest, self.run.gathering
        folders = tuple(folder.fresh_attempt(point.id, number) for point, number in attempts)
        exchange = folders[0] / "exchange"
        exchange.mkdir()
        settings = attempts[0][0].settings
        nodes, each, on_gpus = settings.num_nodes, settings.num_gpus_per_node, manifest.device == "cuda"
        gpus = tuple(gpu.uuid for gpu in manifest.machine.gpus[:each]) if on_gpus else ()
        lead = ""
        places: tuple[Place, ...] = (Place(gpu_uuids=gpus),)
        sites: tuple[Site, ...] = (Site(clock=host_clock(), gpu_uuids=gpus),)
        if gathering is not None and nodes > 1:
            lead, places = gathering.lead.name, gathering.places(nodes, each, on_gpus=on_gpus)
            clocks = {host.name: host.clock for host in gathering.hosts}
            joined = zip(places, gathering.clocks(places), strict=True)
            sites = tuple(Site(clock=clocks[p.host], gpu_uuids=p.gpu_uuids, joined=clock) for p, clock in joined)
        # Other hosts do not see this one's folder of compiled code.
        compiled = folder_of(settings.backend, self.compiled) if self.compiled and nodes == 1 else None
        job = Launch(
            stage=folder.worker,
            exchange=exchange,
            backend=image_backend(settings),
            num_processes=BACKENDS[settings.backend].num_processes(settings),
            places=places,
            host=lead,
            token=f"{folder.mark}/{secrets.token_hex(8)}",
            host_environment={**os.environ, **variables_of(settings.environment)},
            compiled=compiled,
        )
        end_ns = self.budget.end_ns
        return Session(
            run_path=folder.path,
            attempts=attempts,
            orders=tuple(work_order(point, manifest.device, self.records, end_ns) for point, _ in attempts),
            folders=folders,
            job=job,
            launcher=self.run.launcher,
            sites=sites,
            power_reason=manifest.power_reason,
            end_s=self.budget.end_s,
            gathering=gathering,
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
