"""A worker in a container: started, ended, read back and removed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pybench.launch.job import ContainerLauncher, Job, environment_file
from pybench.launch.local import ATTEMPT_VARIABLE
from pybench.launch.oci import ATTEMPT_LABEL, OWNER_LABEL, listing_argv
from pybench.machine.clock import host_clock
from pybench.machine.command import ask
from pybench.machine.engine_images import with_algorithm
from pybench.model.container import ContainerRun
from pybench.model.errors import MachineError
from pybench.runner.process import GRACE_S, WorkerProcess

# Docker waits its own time for a container that doesn't die; ours must be longer than the grace it is given.
_STOP_LIMIT_S = GRACE_S + 30
# As in a shell, a process that signal N ended has exit code 128 + N.
_SIGNALLED = 128


class ContainerWorker:
    """The engine's client as a process of this machine, and the container it started."""

    def __init__(self, launcher: ContainerLauncher, job: Job, argv: Sequence[str], log: Path) -> None:
        """Start ``argv``, which is one of the launcher's for ``job``. Raises ``OSError`` when that can't be done."""
        self._launcher, self._job = launcher, job
        self._ended = False
        self._found: ContainerRun | None = None
        hand_over(launcher, job)
        self._started_utc_s = time.time()
        environment = launcher.environment(job)
        self._client = WorkerProcess(argv, environment, log, variable=ATTEMPT_VARIABLE, token=job.token)

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
            ask(self._launcher.stop_argv(self._job, GRACE_S), _STOP_LIMIT_S)
        self._client.end()
        if self._look():
            ask(self._launcher.remove_argv(self._job))
        environment_file(self._job).unlink(missing_ok=True)
        self._ended = True

    def _look(self) -> bool:
        answer = ask(self._launcher.inspect_argv(self._job))
        if answer.ok:
            self._found = container_run(json.loads(answer.out)[0], self._started_utc_s)
        return answer.ok


def hand_over(launcher: ContainerLauncher, job: Job) -> None:
    """Give the exchange folder to the user inside, and write the environment where only this user reads it."""
    owner = launcher.owner(job)
    if owner is not None and os.geteuid() == 0:
        for path in (job.exchange, *job.exchange.iterdir()):
            os.chown(path, *owner, follow_symlinks=False)
    file = environment_file(job)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600, exist_ok=False)
    file.write_text(launcher.environment_text(job), encoding="utf-8")


def container_run(values: dict[str, Any], launched_utc_s: float) -> ContainerRun:
    """Read one element of ``container inspect``'s answer."""
    state = values["State"]
    started = datetime.fromisoformat(state["StartedAt"]).timestamp()
    began = started > 0  # a container that never started says year 1
    return ContainerRun(
        id=values["Id"],
        image_id=with_algorithm(values["Image"]),
        exit_code=state.get("ExitCode") if began and not state.get("Running") else None,
        start_s=max(0.0, started - launched_utc_s) if began else None,
    )


def this_runner() -> str:
    """Mark of this process on its containers: boot, process namespace, process id and its start, slash-separated."""
    return _runner(os.getpid()) or ""


def remove_orphans(engine: Sequence[str], run_mark: str) -> int:
    """Remove containers whose runner is dead, and all that carry ``run_mark``; returns how many there were.

    Containers of a runner in another process namespace are left alone: from here nobody can tell whether it lives.
    Raises ``MachineError`` when the engine doesn't answer.
    """
    listed = ask(listing_argv(tuple(engine)))
    if not listed.ok:
        raise MachineError(f"{engine[0]} can't list its containers: {listed.complaint}")
    count = 0
    for container in listed.out.split():
        labels = _labels(engine, container)
        if _is_orphan(labels.get(OWNER_LABEL, "")) or labels.get(ATTEMPT_LABEL, "").startswith(f"{run_mark}/"):
            ask((*engine, "rm", "--force", "--volumes", container))
            count += 1
    return count


def _labels(engine: Sequence[str], container: str) -> dict[str, str]:
    answer = ask((*engine, "container", "inspect", container))
    return (json.loads(answer.out)[0]["Config"]["Labels"] or {}) if answer.ok else {}


def _is_orphan(owner: str) -> bool:
    boot, namespace, pid, _start = ([*owner.split("/"), "", "", "", ""])[:4]
    if boot != host_clock()[0]:
        return bool(boot)
    if namespace != _namespace() or not pid.isdigit():
        return False
    return _runner(int(pid)) != owner


def _runner(pid: int) -> str | None:
    try:
        # Fields after the name, which may hold spaces: proc(5), field 22 is the start in clock ticks.
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return None
    return f"{host_clock()[0]}/{_namespace()}/{pid}/{start}"


def _namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
