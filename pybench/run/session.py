"""A worker process and its attempts, at different points one after another."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pybench.core.schedule import Attempt, settings_of_next
from pybench.model.errors import MachineError
from pybench.model.machine import DeviceKind
from pybench.model.record import ALONE, Record
from pybench.model.suite import Point
from pybench.model.wire import ORDERS_FILE, SCRATCH_FOLDER, WorkOrder, go_file
from pybench.run.engines.base import Launch, Launcher
from pybench.run.engines.environment import Redaction, passed_secrets
from pybench.run.engines.process import Worker
from pybench.run.engines.starter import ForkedWorker
from pybench.run.events.contract import Site
from pybench.run.hosts.gathering import Gathering
from pybench.run.hosts.worker import HostsWorker, first_part


@dataclass(frozen=True, kw_only=True)
class Session:
    """The attempts with their work orders and folders; the first one's folder holds the process's log and exchange.

    ``job`` has as many GPUs as each of the points occupies, none on a CPU. ``sites`` are the hosts of its places: a
    worker that reports another clock can't be joined with the power trace. ``power_reason`` is why power is not sampled
    here; ``None`` when it is. At ``end_s`` of ``time.monotonic`` the run's own time is over. ``gathering`` has the way
    to the other hosts of a job that spans several.
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

    @property
    def log(self) -> Path:
        """Standard output and error of the process."""
        return self.folders[0] / "worker.log"

    def is_last(self, place: int) -> bool:
        """Whether the process ends after attempt ``place``."""
        return place == len(self.attempts) - 1


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


class SessionWorker:
    """Hands the session's orders over; ``argv`` is the command line that works on them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._worker: Worker | None = None
        self._ended = False
        job = session.job
        self.argv = session.launcher.argv(first_part(job) if job.spans_hosts else job)
        passed = session.launcher.tuning(job.host_environment)
        self.redaction = Redaction(passed_secrets(passed, session.launcher.secrets))
        lines = (order.to_json() + "\n" for order in session.orders)
        (job.exchange / ORDERS_FILE).write_text("".join(lines), encoding="utf-8")

    def begin(self, place: int) -> Worker:
        """Let it work on the order ``place``; for the first it is started. Raises ``OSError`` when that can't be."""
        if self._worker is None:
            self._worker = self._started()
        else:
            # An existing file is the worker's: no link is followed, nothing overwritten.
            with suppress(FileExistsError):
                path = self._session.job.exchange / go_file(place)
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        return self._worker

    @property
    def over_hosts(self) -> HostsWorker | None:
        """The worker where it has parts on other hosts."""
        return self._worker if isinstance(self._worker, HostsWorker) else None

    @property
    def start(self) -> str:
        """How it was started."""
        return self._worker.start if isinstance(self._worker, ForkedWorker) else ALONE

    def end(self) -> None:
        """End the process, remove its scratch files, take secrets out of the rest; a second time does nothing."""
        if self._ended:
            return
        try:
            if self._worker is not None:
                self._worker.end()
        except MachineError:
            self._ended = True  # what could not be killed once is not waited for again
            raise
        finally:
            # A worker that was killed leaves what it would have removed itself.
            shutil.rmtree(self._session.job.exchange / SCRATCH_FOLDER, ignore_errors=True)
            for folder in self._session.folders:
                self.redaction.files(folder)
        self._ended = True

    def _started(self) -> Worker:
        session, job = self._session, self._session.job
        if not job.spans_hosts or session.gathering is None:
            return session.launcher.start(job, session.log)
        links = [session.gathering.link(place.host) for place in job.places]
        clocks = tuple(site.joined for site in session.sites)
        limit_s = session.attempts[0][0].effort.time_limit_s
        return HostsWorker(job, session.log, links, clocks, session.launcher.start, limit_s)
