"""The common part of all launchers of images, and a first start of an image before a run."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import ClassVar, TypeVar

from pybench.machine.command import CommandResult, run_command
from pybench.machine.disk import disk_error
from pybench.model.container import ContainerSetup, ImageIdentity, Mount
from pybench.model.errors import MachineError
from pybench.model.host import OLDEST_PYTHON, Place
from pybench.model.tuning import LOOPBACK
from pybench.model.wire import SHARED_VARIABLE
from pybench.run.engines.base import Argv, Launch, Launcher
from pybench.run.engines.environment import fixed, tuning
from pybench.run.engines.process import WorkerProcess
from pybench.run.engines.stage import WORKER_SCRIPT

STAGE = PurePosixPath("/pybench/stage")
EXCHANGE = PurePosixPath("/pybench/exchange")
COMPILED = PurePosixPath("/pybench/compiled")
MODELS = PurePosixPath("/pybench/models")
"""Where a job's folders are inside."""
_COMPILED_AT = {
    SHARED_VARIABLE: COMPILED,
    "XDG_CACHE_HOME": COMPILED,  # vLLM's, and torch's extensions
    "CUDA_CACHE_PATH": COMPILED / "cuda",
    "FLASHINFER_WORKSPACE_BASE": COMPILED,
    "TORCHINDUCTOR_CACHE_DIR": COMPILED / "inductor",
    "TRITON_CACHE_DIR": COMPILED / "triton",
}


@dataclass(frozen=True, kw_only=True)
class ImageLauncher(Launcher):
    """Base of the launchers whose workers run in images: ``container`` is what all jobs of the run have in common.

    ``models`` is this host's cache of models, where workers see it.
    """

    container: ContainerSetup
    environment_of_suite: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    models: Path | None = None

    @property
    def name(self) -> str:
        """Name of the engine, for the manifest."""
        return self.container.engine

    def image(self, job: Launch) -> ImageIdentity:
        """The image of the job's backend."""
        return next(image for image in self.container.images if image.backend == job.backend)

    def worker_arguments(self, job: Launch) -> Argv:
        """Arguments of the image's Python for a worker."""
        return ("-I", "-B", str(STAGE / WORKER_SCRIPT.as_posix()), str(EXCHANGE), *job.rank_options)

    def tuning(self, host: Mapping[str, str]) -> dict[str, str]:
        """The suite's over the shell's, then the secrets."""
        return self._tuning({**host, **LOOPBACK})

    def variables(self, job: Launch) -> dict[str, str]:
        """What tunes the job's worker; compiled code goes to the run's folder unless the suite names another."""
        tuned = self.tuning(job.host_environment) if job.meeting is None else self._tuning(job.host_environment)
        return {**({name: str(path) for name, path in _COMPILED_AT.items()} if job.compiled else {}), **tuned}

    def mounts(self, job: Launch) -> Iterator[tuple[Mount, bool]]:
        """Each mount of the worker, and whether the worker may write there."""
        ours = ((job.stage, STAGE), (self.models, MODELS))
        yield from ((Mount(source=str(source), target=str(target)), False) for source, target in ours if source)
        yield from ((mount, False) for mount in self.container.mounts)
        written = ((job.exchange, EXCHANGE), (job.compiled, COMPILED))
        yield from ((Mount(source=str(source), target=str(target)), True) for source, target in written if source)

    def _tuning(self, host: Mapping[str, str]) -> dict[str, str]:
        secrets = {name: host[name] for name in self.secrets if name in host}
        return {**tuning(host), **self.environment_of_suite, **secrets}


@dataclass(frozen=True, kw_only=True)
class ImageFileLauncher(ImageLauncher):
    """Base of the launchers: ``files`` maps each backend to its image file, whose digest is the image's id.

    ``GUARDED`` is for an engine that leaves a worker's processes where this machine's own are.
    """

    GUARDED: ClassVar[bool] = True
    files: Mapping[str, Path]

    @abstractmethod
    def start_argv(self, job: Launch, *arguments: str) -> Argv:
        """Command line of the engine's client, which becomes the image's Python with ``arguments``."""

    @abstractmethod
    def environment(self, job: Launch) -> dict[str, str]:
        """Environment of the client."""

    def argv(self, job: Launch) -> Argv:
        """Command line of the worker."""
        return self.start_argv(job, *self.worker_arguments(job))

    def start(self, job: Launch, log: Path) -> WorkerProcess:
        """Start the worker as a child of this process. Raises ``OSError``."""
        return WorkerProcess(self.argv(job), self.environment(job), log, job.token, guarded=self.GUARDED)

    def inside(self, job: Launch) -> dict[str, str]:
        """Variables of the worker."""
        secrets = {name: job.host_environment[name] for name in self.secrets}
        return {**self.variables(job), **fixed(job.gpu_uuids), **secrets}


def shown_gpus(job: Launch) -> dict[str, str]:
    """What nvidia-container-cli reads in the client's environment: the GPUs of the job alone."""
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(job.gpu_uuids) or "void"}


@contextmanager
def trial_job(backend: str, gpu_uuids: tuple[str, ...]) -> Iterator[Launch]:
    """A job of one process whose folders are there within. Raises ``MachineError`` where a disk takes none."""
    room = disk_error(Path(tempfile.gettempdir()), "", " run the same command again")
    with room, tempfile.TemporaryDirectory(prefix="pybench-") as scratch:
        folder = Path(scratch)
        for name in ("stage", "exchange"):
            (folder / name).mkdir(mode=0o755)
        yield Launch(
            stage=folder / "stage",
            exchange=folder / "exchange",
            backend=backend,
            num_processes=1,
            places=(Place(gpu_uuids=gpu_uuids),),
            token=f"probe/{secrets.token_hex(8)}",
            host_environment=dict(os.environ),
        )


def python_version(image: ImageIdentity, result: CommandResult) -> str:
    """As the tried image printed it. Raises ``MachineError`` for one that is too old for the worker."""
    found = json.loads(result.out.splitlines()[-1])
    if tuple(found["version"]) < OLDEST_PYTHON:
        raise MachineError(f"image {image.name} has Python {found['python']}; the worker needs 3.10 or newer")
    return str(found["python"])


_Launcher = TypeVar("_Launcher", bound=ImageFileLauncher)

# What every worker needs, tried by the image's own Python before anything is measured.
PROBE = """
import json, os, platform, sys
os.listdir("/pybench/stage")
with open("/pybench/exchange/probe", "w") as stream:
    stream.write("ok")
print(json.dumps({"python": platform.python_version(), "version": sys.version_info[:2]}))
"""
# An engine of image files brings the driver's library.
_WITH_DRIVER = PROBE + 'import ctypes; os.environ["CUDA_VISIBLE_DEVICES"] and ctypes.CDLL("libcuda.so.1")'
OTHER_REMEDY = "pybench doctor lists what this machine lacks"
USER_NAMESPACES = (
    "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns)"
)


def tried(tries: Iterable[_Launcher], gpu_uuids: tuple[str, ...], remedies: Mapping[str, str]) -> _Launcher:
    """The first of ``tries`` to start each image; ``remedies`` by the engine's words. Raises ``MachineError``."""
    refused = None
    for launcher in tries:
        results = [(image, _probe(launcher, image.backend, gpu_uuids)) for image in launcher.container.images]
        refused = next(((image, result) for image, result in results if not result.ok), None)
        if refused is None:
            images = tuple(replace(image, python=python_version(image, result)) for image, result in results)
            return replace(launcher, container=replace(launcher.container, images=images))
    assert refused is not None
    image, result = refused
    lines = [line.strip().removeprefix("[ERROR] ") for line in result.error.splitlines() if line.strip()]
    useful = [line for line in lines if "exited with return code" not in line]
    words = useful[-1] if useful else result.error_line
    remedy = next((remedy for part, remedy in remedies.items() if part in words), OTHER_REMEDY)
    raise MachineError(f"{launcher.name} can't start a worker in image {image.name}: {words}; {remedy}")


def _probe(launcher: ImageFileLauncher, backend: str, gpu_uuids: tuple[str, ...]) -> CommandResult:
    with trial_job(backend, gpu_uuids) as job:
        bare = replace(launcher, secrets=())
        variables = (f"{name}={value}" for name, value in bare.environment(job).items())
        return run_command(("env", "-i", *variables, *bare.start_argv(job, "-I", "-B", "-c", _WITH_DRIVER)))
