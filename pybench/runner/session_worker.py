"""The process of a session: started with its first attempt, released to each next one, ended once."""

from __future__ import annotations

import os
from contextlib import suppress

from pybench.engines.base import Worker
from pybench.engines.redaction import Redaction
from pybench.model.wire import ORDERS_FILE, go_file
from pybench.runner.session import Session


class SessionWorker:
    """Hands the session's orders over; ``argv`` is the command line that works on them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._worker: Worker | None = None
        self._ended = False
        job = session.job
        self.argv = session.launcher.argv(job)
        self.redaction = Redaction(job.host_environment[name] for name in session.launcher.secrets)
        lines = (order.to_json() + "\n" for order in session.orders)
        (job.exchange / ORDERS_FILE).write_text("".join(lines), encoding="utf-8")

    def begin(self, place: int) -> Worker:
        """Let it work on the order ``place``; for the first it is started. Raises ``OSError`` when that can't be."""
        if self._worker is None:
            self._worker = self._session.launcher.start(self._session.job, self._session.log)
        else:
            self._say_go(place)
        return self._worker

    def end(self) -> None:
        """End the process, and take secrets out of all that it wrote; a second time does nothing."""
        if self._ended:
            return
        if self._worker is not None:
            self._worker.end()
        for folder in self._session.folders:
            self.redaction.files(folder)
        self._ended = True

    def _say_go(self, place: int) -> None:
        # What is there already was put there by the worker: nothing is followed, nothing overwritten.
        with suppress(FileExistsError):
            path = self._session.job.exchange / go_file(place)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
