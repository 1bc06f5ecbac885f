"""Starts workers in docker or podman, whose command lines agree in all that is needed here."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pybench.machine.command import run_command
from pybench.machine.environment import host_clock
from pybench.model.container import ContainerRun, Mount
from pybench.model.errors import MachineError
from pybench.model.wire import Failure
from pybench.run.engines.base import Argv, Launch
from pybench.run.engines.environment import fixed
from pybench.run.engines.image_launcher import MODELS, ImageLauncher
from pybench.run.engines.oci.confinement import Confinement, GpuOptions
from pybench.run.engines.oci.images import with_algorithm
from pybench.run.engines.process import WorkerProcess, end_marked, log_tail

INSPECT = ("container", "inspect")
STOP = ("stop", "--time", "0")
"""Kills at once: the kernel delivers no SIGTERM to a container's first process, which a worker is."""
REMOVE = ("rm", "--force", "--volumes")
OWNER_LABEL = "pybench.run"
"""Label of a container: the process that started it."""
ATTEMPT_LABEL = "pybench.attempt"
"""Label of a container: the token of its job."""
_NO_LETTERS = str.maketrans("/@", "--")
# As in a shell, a process that signal N ended has exit code 128 + N.
_SIGNALLED = 128

# Variables for the engine's client: paths of programs and configuration, and the daemon.
_CLIENT_NAMES = frozenset({"PATH", "HOME", "USER", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"})
_CLIENT_PREFIXES = ("DOCKER_", "CONTAINERS_", "CONTAINER_HOST", "LD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True)
class OciLauncher(ImageLauncher):
    """Launcher of one engine for one run; ``runner`` owns its containers."""

    confinement: Confinement
    gpu_options: GpuOptions
    runner: str

    @property
    def engine(self) -> Argv:
        """The program with its options, before the subcommand."""
        return (self.name, *self.confinement.engine_options)

    def start(self, job: Launch, log: Path) -> ContainerWorker:
        """Start the job's container. Raises ``OSError`` when the engine's client can't be started."""
        return ContainerWorker(self, job, self.argv(job), log)

    def verify(self, container: ContainerRun | None, job: Launch, log: Path) -> Failure | None:
        """Refuse a job that ran in no container, or in another image than the run's."""
        if container is None or container.start_s is None:
            tail = log_tail(log)
            lines = [line for line in tail.splitlines() if line.strip() and not line.startswith("Run 'docker")]
            message = f"{self.name} started no container: {lines[-1] if lines else 'it gave no reason'}"
            return Failure(cause="launch", message=message, detail=tail)
        image = self.image(job)
        if container.image_id != image.id:
            message = f"image {container.image_id} ran, expected {image.id} ({image.name})"
            return Failure(cause="identity", message=message, detail=log_tail(log))
        return None

    def remove_leftovers(self, run_mark: str) -> None:
        """End clients of a killed runner, then remove its containers and all whose runner is dead."""
        end_marked(f"{run_mark}/")
        remove_orphans(self.engine, run_mark)

    def start_argv(self, job: Launch, *arguments: str) -> Argv:
        """``run`` in the foreground: its output is the worker's log; the container is kept for reading back."""
        image = self.image(job)
        replaces = image.entrypoint == "replace"
        # Podman reads a list where docker reads one path, and point names have commas.
        file = str(self.environment_file(job))
        return (
            *self.engine,
            "run",
            *("--name", container_name(job)),
            *("--label", f"{OWNER_LABEL}={self.runner}"),
            *("--label", f"{ATTEMPT_LABEL}={job.token}"),
            *("--pull", "never"),
            *("--log-driver", "none"),
            *self.confinement.options(),
            *self.gpu_options(job.gpu_uuids),
            *(part for mount in self.mounts(job) for part in ("--mount", _bind(*mount))),
            *("--env-file", _csv_line(file) if self.name == "podman" else file),
            *("--workdir", "/tmp"),  # noqa: S108 - inside, private
            *(("--entrypoint", image.interpreter) if replaces else ()),
            image.id,
            *(() if replaces else (image.interpreter,)),
            *arguments,
        )

    def environment(self, job: Launch) -> dict[str, str]:
        """Environment of the engine's client; the worker's own goes through :meth:`environment_text`."""
        return {
            name: value
            for name, value in job.host_environment.items()
            if name in _CLIENT_NAMES or name.startswith(_CLIENT_PREFIXES)
        }

    def environment_file(self, job: Launch) -> Path:
        """Where the environment of a job's container is while it starts: outside of what the container sees."""
        return job.exchange.parent / "environment"

    def environment_text(self, job: Launch) -> str:
        """One ``NAME=VALUE`` a line: ours over the suite's over the shell's, then the secrets."""
        values = {
            **self.variables(job),
            **fixed(job.gpu_uuids),
            "HOME": "/tmp",  # noqa: S108 - inside, private
            "USER": "pybench",  # the user has no entry in the image's passwd, and libraries name caches after it
            # An image may request every GPU; engines whose default runtime is NVIDIA's would grant it.
            "NVIDIA_VISIBLE_DEVICES": ",".join(job.gpu_uuids) or "void",
            **({"HF_HUB_CACHE": str(MODELS)} if self.models else {}),
            **{name: job.host_environment[name] for name in self.secrets},
        }
        return "".join(f"{name}={value}\n" for name, value in sorted(values.items()))

    def container_argv(self, job: Launch, *words: str) -> Argv:
        """What the client does, by its ``words``, with the job's container."""
        return (*self.engine, *words, container_name(job))


class ContainerWorker:
    """The engine's client as a process of this machine, and the container it started."""

    def __init__(self, launcher: OciLauncher, job: Launch, argv: Sequence[str], log: Path) -> None:
        """Start ``argv``, which is one of the launcher's for ``job``. Raises ``OSError`` when that can't be done."""
        self._launcher, self._job = launcher, job
        self._ended = False
        self._found: ContainerRun | None = None
        prepare_files(launcher, job)
        self._started_utc_s = time.time()
        self._client = WorkerProcess(argv, launcher.environment(job), log, job.token)

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
        """Kill the container if it still runs, read back what it was, and leave nothing of it."""
        if self._ended:
            return
        if self.wait(0) is None:
            run_command(self._launcher.container_argv(self._job, *STOP), outlives=True)
        self._client.end()
        if self._look():
            run_command(self._launcher.container_argv(self._job, *REMOVE), outlives=True)
        self._launcher.environment_file(self._job).unlink(missing_ok=True)
        self._ended = True

    def _look(self) -> bool:
        result = run_command(self._launcher.container_argv(self._job, *INSPECT))
        if result.ok:
            values = json.loads(result.out)[0]
            state = values["State"]
            start_s = datetime.fromisoformat(state["StartedAt"]).timestamp()
            began = start_s > 0  # year 1: the container never started
            self._found = ContainerRun(
                id=values["Id"],
                image_id=with_algorithm(values["Image"]),
                exit_code=state.get("ExitCode") if began and not state.get("Running") else None,
                start_s=max(0.0, start_s - self._started_utc_s) if began else None,
            )
        return result.ok


def prepare_files(launcher: OciLauncher, job: Launch) -> None:
    """Give what the worker writes to the user inside, and write the environment where only this user reads it."""
    if os.geteuid() == 0:
        uid, gid = map(int, launcher.confinement.user.split(":"))
        for path in (job.exchange, *job.exchange.iterdir(), *((job.compiled,) if job.compiled else ())):
            os.chown(path, uid, gid, follow_symlinks=False)
    file = launcher.environment_file(job)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600, exist_ok=False)
    file.write_text(launcher.environment_text(job), encoding="utf-8")


def container_name(job: Launch) -> str:
    """Name of the job's container: the attempt's token in the letters that engines allow."""
    return f"pybench-{job.token.translate(_NO_LETTERS)}"


def _bind(mount: Mount, is_writable: bool) -> str:
    """Value of ``--mount``: one line of CSV, so that commas in a path (points have them) stay in the path."""
    options = () if is_writable else ("readonly",)
    return _csv_line("type=bind", f"source={mount.source}", f"target={mount.target}", *options)


def _csv_line(*fields: str) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def remove_orphans(engine: Sequence[str], run_mark: str) -> int:
    """Remove containers of dead runners here and of ``run_mark``; returns how many. Raises ``MachineError``."""
    listed = run_command((*engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={OWNER_LABEL}"))
    if not listed.ok:
        raise MachineError(f"{engine[0]} can't list its containers: {listed.error_line}")
    count = 0
    for container in listed.out.split():
        result = run_command((*engine, *INSPECT, container))
        labels = (json.loads(result.out)[0]["Config"]["Labels"] or {}) if result.ok else {}
        if _is_orphan(labels.get(OWNER_LABEL, "")) or labels.get(ATTEMPT_LABEL, "").startswith(f"{run_mark}/"):
            run_command((*engine, *STOP, container), outlives=True)
            run_command((*engine, *REMOVE, container), outlives=True)
            count += 1
    return count


def _is_orphan(owner: str) -> bool:
    boot, namespace, pid, _start = ([*owner.split("/"), "", "", "", ""])[:4]
    if boot != host_clock()[0]:
        return bool(boot)
    if namespace != _namespace() or not pid.isdigit():
        return False
    return runner_mark(int(pid)) != owner


def runner_mark(pid: int) -> str | None:
    """Mark of a process on its containers: boot, process namespace, process id and its start, slash-separated."""
    try:
        # Fields after the name, which may hold spaces: proc(5), field 22 is the start in clock ticks.
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return None
    return f"{host_clock()[0]}/{_namespace()}/{pid}/{start}"


def _namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
