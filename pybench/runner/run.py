"""The loop over attempts: what is owed, then what could still decide a verdict."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pybench.compute.schedule import Attempt, Row, pending, undecided
from pybench.compute.session import next_session
from pybench.engines.base import Job, Launcher
from pybench.judge.assemble import assemble
from pybench.judge.measurements import Measurements
from pybench.machine.clock import host_clock
from pybench.machine.device_lock import locked_devices
from pybench.machine.disk import disk_error, require_room
from pybench.model.backend import BACKENDS
from pybench.model.errors import RunFolderError
from pybench.model.manifest import Manifest
from pybench.model.progress import Progress
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.suite import Point
from pybench.runner.attempt import run_session
from pybench.runner.attempt_figure import attempt_figure
from pybench.runner.expected_time import expected_s
from pybench.runner.machine_trouble import ATTEMPT_BYTES, blame_machine, resume_remedy
from pybench.runner.session import Session
from pybench.runner.work_order import work_order
from pybench.store.journal import RunFolder


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run in its folder: planned, perhaps begun."""

    folder: RunFolder
    manifest: Manifest
    launcher: Launcher

    def results(self) -> Results:
        """Judge what is recorded so far."""
        return self._judge(self.folder.records())

    def _judge(self, records: Sequence[Record]) -> Results:
        return assemble(self.manifest, Measurements.of(self.manifest.plan, records))

    def finish(self, progress: Progress) -> Results:
        """Measure all that is owed, then what is undecided, and judge it.

        Raises ``KeyboardInterrupt`` on Ctrl-C, SIGTERM or SIGHUP, ``MachineError`` on a faulty disk or an engine that
        went down: workers are ended by then and everything measured is kept.
        """
        path = self.folder.path
        with (
            disk_error(path, *resume_remedy(path)),
            self.folder.lock(),
            _signals_interrupt(),
            self._devices(progress),
        ):
            # A runner that was killed may have left workers that still hold GPUs.
            self.launcher.remove_leftovers(self.folder.mark)
            records = list(self.folder.records())
            _check_digests(path, self.manifest.plan.points, records)
            try:
                owed = pending(self.manifest.plan.points, records)
                takes_s = expected_s(self.folder, self.manifest, owed, records)
                progress.run_started(self.folder.run_id, str(path), len(owed), takes_s)
                while owed:
                    self._measure(next_session(owed, records), records, len(owed), progress)
                    owed = pending(self.manifest.plan.points, records)
                self._decide(records, progress)
            finally:
                progress.finished()
            if records:
                self.folder.require_complete()
            return self._judge(records)

    def _devices(self, progress: Progress) -> AbstractContextManager[None]:
        """Hold every device that a point may run on, once no other run does."""
        most = max((point.num_gpus for point in self.manifest.plan.points), default=0)
        uuids = [gpu.uuid for gpu in self.manifest.machine.gpus[:most]] if self.manifest.device == "cuda" else []
        return locked_devices(uuids, f"process {os.getpid()}, {self.folder.path}", progress.note)

    def _decide(self, records: list[Record], progress: Progress) -> None:
        """Add attempts while a verdict is inconclusive and its points' budget lasts."""
        while extra := self._undecided(records):
            progress.note(f"inconclusive: {len(extra)} more attempts")
            while extra:
                before = len(records)
                self._measure(next_session(extra, records), records, len(extra), progress)
                extra = extra[len(records) - before :]

    def _undecided(self, records: Sequence[Record]) -> tuple[Attempt, ...]:
        results = self._judge(records)
        rows: tuple[Row, ...] = (*results.scaling, *results.checks, *results.comparisons, *results.node)
        return undecided(self.manifest.plan.points, rows, records)

    def _measure(self, attempts: tuple[Attempt, ...], records: list[Record], num_owed: int, progress: Progress) -> None:
        """Make the attempts in one process, up to the first that fails, and add their records to ``records``."""
        total = len(records) + num_owed
        with closing(run_session(self._session(attempts, records), progress)) as measured:
            for point, number in attempts:
                progress.attempt_started(point.id, number, len(records) + 1, total)
                require_room(self.folder.path, ATTEMPT_BYTES)
                record = next(measured)
                blame_machine(record, self.launcher, self.folder.path)
                self.folder.append(record)
                records.append(record)
                failure = record.failure
                outcome = f"{failure.cause}: {failure.message}" if failure else "ok"
                progress.attempt_finished(point.id, outcome, failure is None, attempt_figure(point, record))
                if failure:
                    return

    def _session(self, attempts: tuple[Attempt, ...], records: Sequence[Record]) -> Session:
        folders = tuple(self.folder.fresh_attempt(point.id, number) for point, number in attempts)
        exchange = folders[0] / "exchange"
        exchange.mkdir()
        return Session(
            run_path=self.folder.path,
            attempts=attempts,
            orders=tuple(work_order(point, self.manifest.device, records) for point, _ in attempts),
            folders=folders,
            job=self._job(attempts[0][0], exchange),
            launcher=self.launcher,
            clock=host_clock(),
            power_reason=self.manifest.power_reason,
        )

    def _job(self, point: Point, exchange: Path) -> Job:
        gpus = tuple(gpu.uuid for gpu in self.manifest.machine.gpus[: point.num_gpus])
        return Job(
            stage=self.folder.worker,
            exchange=exchange,
            backend=point.settings.backend,
            num_processes=BACKENDS[point.settings.backend].num_processes(point.settings),
            gpu_uuids=gpus if self.manifest.device == "cuda" else (),
            token=f"{self.folder.mark}/{secrets.token_hex(8)}",
            host_environment=dict(os.environ),
        )


def _check_digests(path: Path, points: Sequence[Point], records: Sequence[Record]) -> None:
    """Refuse to mix measurements of different things under one id."""
    known = {point.id: point.digest for point in points}
    for record in records:
        if record.point_id in known and known[record.point_id] != record.point_digest:
            message = f"{path}: the journal's {record.point_id} was measured with other settings; run afresh"
            raise RunFolderError(message)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: a CI's cancel or a closed terminal leaves no worker behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # nohup has SIGHUP ignored.
    taken = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
