"""Start a job the way its launcher needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pybench.launch.job import ContainerLauncher, Job, Launcher
from pybench.launch.local import ATTEMPT_VARIABLE
from pybench.model.container import ContainerRun
from pybench.runner.container import ContainerWorker
from pybench.runner.process import WorkerProcess


class Worker(Protocol):
    """A started worker."""

    def wait(self, timeout_s: float) -> int | None:
        """Exit code once it has ended (negative: the signal), ``None`` while it runs."""

    def container(self) -> ContainerRun | None:
        """What it runs in, or ran in once it has ended; ``None`` for no container."""

    def end(self) -> object:
        """End it whole, wherever it runs; a second time does nothing."""


def start_worker(launcher: Launcher, job: Job, argv: Sequence[str], log: Path) -> Worker:
    """Start ``argv``. Raises ``OSError`` when it can't be started."""
    if isinstance(launcher, ContainerLauncher):
        return ContainerWorker(launcher, job, argv, log)
    return WorkerProcess(argv, launcher.environment(job), log, variable=ATTEMPT_VARIABLE, token=job.token)
