"""A worker in a container: started, ended, read back and removed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from pybench.machine.command import run_command
from pybench.model.container import ContainerRun
from pybench.run.engines.base import Argv, Launch
from pybench.run.engines.oci.images import with_algorithm
from pybench.run.engines.process import GRACE_S, WorkerProcess

# Docker waits its own time for a container that doesn't die; ours must be longer than the grace it is given.
_STOP_LIMIT_S = GRACE_S + 30
# As in a shell, a process that signal N ended has exit code 128 + N.
_SIGNALLED = 128


class ContainerCommands(Protocol):
    """The commands that a container is started, read back and removed with."""

    def environment(self, job: Launch) -> dict[str, str]:
        """Environment of the engine's client."""

    def environment_file(self, job: Launch) -> Path:
        """Where the container's own environment is while it starts."""

    def environment_text(self, job: Launch) -> str:
        """Content of that file, which may hold secrets."""

    def owner(self) -> tuple[int, int]:
        """User and group that folders which the worker writes must belong to."""

    def inspect_argv(self, job: Launch) -> Argv:
        """Command that describes the job's container as JSON."""

    def stop_argv(self, job: Launch, grace_s: float) -> Argv:
        """Command that ends the job's container, by force after ``grace_s``."""

    def remove_argv(self, job: Launch) -> Argv:
        """Command that removes the job's container, dead or alive."""


class ContainerWorker:
    """The engine's client as a process of this machine, and the container it started."""

    def __init__(self, launcher: ContainerCommands, job: Launch, argv: Sequence[str], log: Path) -> None:
        """Start ``argv``, which is one of the launcher's for ``job``. Raises ``OSError`` when that can't be done."""
        self._launcher, self._job = launcher, job
        self._ended = False
        self._found: ContainerRun | None = None
        prepare_files(launcher, job)
        self._started_utc_s = time.time()
        environment = launcher.environment(job)
        self._client = WorkerProcess(argv, environment, log, job.token)

    def wait(self, timeout_s: float) -> int | None:
        """Exit code of the container's first process once it has ended (negative: the signal), ``None`` before."""
        code = self._client.wait(timeout_s)
        return code if code is None or code <= _SIGNALLED else _SIGNALLED - code

    def container(self) -> ContainerRun | None:
        """The container as the engine describes it now, once it has ended as it was then; ``None`` when it can't."""
        if not self._ended:
            self._look()
        return self._found

    def end(self) -> None:
        """Stop the container if it still runs, read back what it was, and leave nothing of it."""
        if self._ended:
            return
        if self.wait(0) is None:
            run_command(self._launcher.stop_argv(self._job, GRACE_S), _STOP_LIMIT_S, outlives=True)
        self._client.end()
        if self._look():
            run_command(self._launcher.remove_argv(self._job), outlives=True)
        self._launcher.environment_file(self._job).unlink(missing_ok=True)
        self._ended = True

    def _look(self) -> bool:
        result = run_command(self._launcher.inspect_argv(self._job))
        if result.ok:
            self._found = container_run(json.loads(result.out)[0], self._started_utc_s)
        return result.ok


def prepare_files(launcher: ContainerCommands, job: Launch) -> None:
    """Give what the worker writes to the user inside, and write the environment where only this user reads it."""
    if os.geteuid() == 0:
        owner = launcher.owner()
        for path in (job.exchange, *job.exchange.iterdir(), *((job.compiled,) if job.compiled else ())):
            os.chown(path, *owner, follow_symlinks=False)
    file = launcher.environment_file(job)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600, exist_ok=False)
    file.write_text(launcher.environment_text(job), encoding="utf-8")


def container_run(values: dict[str, Any], launched_utc_s: float) -> ContainerRun:
    """Read one element of ``container inspect``'s result."""
    state = values["State"]
    started = datetime.fromisoformat(state["StartedAt"]).timestamp()
    began = started > 0  # year 1: the container never started
    return ContainerRun(
        id=values["Id"],
        image_id=with_algorithm(values["Image"]),
        exit_code=state.get("ExitCode") if began and not state.get("Running") else None,
        start_s=max(0.0, started - launched_utc_s) if began else None,
    )
