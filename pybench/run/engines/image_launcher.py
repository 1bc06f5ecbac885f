"""Launchers of images, a first start of an image before a run, and engines that start image files.

Such engines have files in the user's cache, no daemon and no store of images.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import ClassVar, Generic, TypeVar

from pybench.machine.command import CommandResult, run_command
from pybench.machine.disk import disk_error
from pybench.model.container import ContainerSetup, EngineFacts, ImageIdentity, Mount, Relaxation
from pybench.model.errors import MachineError, UsageError
from pybench.model.machine import OLDEST_PYTHON, DoctorFinding, Place
from pybench.model.tuning import LOOPBACK
from pybench.model.wire import SHARED_VARIABLE
from pybench.run.engines.base import Argv, Engine, EngineOptions, Launch, Launcher, LaunchRequirements, Notify
from pybench.run.engines.environment import fixed, tuning
from pybench.run.engines.process import WorkerProcess
from pybench.run.engines.stage import WORKER_SCRIPT
from pybench.run.images.lock import AbsentImageError, locked_image, this_platform

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

    @abstractmethod
    def start_argv(self, job: Launch, *arguments: str) -> Argv:
        """Command line of the engine's client, which starts the image's Python with ``arguments``."""

    def argv(self, job: Launch) -> Argv:
        """Command line of the worker."""
        script = str(STAGE / WORKER_SCRIPT.as_posix())
        return self.start_argv(job, "-I", "-B", script, str(EXCHANGE), *job.rank_options)

    def tuning(self, host: Mapping[str, str], *, alone: bool = True) -> dict[str, str]:
        """The suite's over the shell's, then the secrets; ranks of one host, ``alone``, need no network."""
        host = {**host, **LOOPBACK} if alone else host
        secrets = {name: host[name] for name in self.secrets if name in host}
        return {**tuning(host), **self.environment_of_suite, **secrets}

    def variables(self, job: Launch) -> dict[str, str]:
        """What tunes the job's worker; compiled code goes to the run's folder unless the suite names another."""
        tuned = self.tuning(job.host_environment, alone=job.meeting is None)
        return {**({name: str(path) for name, path in _COMPILED_AT.items()} if job.compiled else {}), **tuned}

    def mounts(self, job: Launch) -> Iterator[tuple[Mount, bool]]:
        """Each mount of the worker, and whether the worker may write there."""
        ours = ((job.stage, STAGE), (self.models, MODELS))
        yield from ((Mount(source=str(source), target=str(target)), False) for source, target in ours if source)
        yield from ((mount, False) for mount in self.container.mounts)
        written = ((job.exchange, EXCHANGE), (job.compiled, COMPILED))
        yield from ((Mount(source=str(source), target=str(target)), True) for source, target in written if source)


@dataclass(frozen=True, kw_only=True)
class ImageFileLauncher(ImageLauncher):
    """Base of the launchers: ``files`` maps each backend to its image file, whose digest is the image's id.

    ``GUARDED`` is for an engine that leaves a worker's processes where this machine's own are.
    """

    GUARDED: ClassVar[bool] = True
    files: Mapping[str, Path]

    @abstractmethod
    def environment(self, job: Launch) -> dict[str, str]:
        """Environment of the client."""

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
    printed = json.loads(result.out.splitlines()[-1])
    if tuple(printed["version"]) < OLDEST_PYTHON:
        raise MachineError(f"image {image.name} has Python {printed['python']}; the worker needs 3.10 or newer")
    return str(printed["python"])


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


Make = Callable[[str, Path], None]
"""Writes the image file of ``repository@sha256:…`` to a path where no file is. Raises ``MachineError``."""


@dataclass(frozen=True)
class ImageFileEngine(Engine, Generic[_Launcher]):
    """An engine whose images are files of the suffix ``kind``, which ``make`` writes by their locked digests.

    ``tries`` gives the launchers to try, from one whose container names the relaxations that the suite requests, and
    whether the network is one of them. ``remedies`` are by the engine's words, for where all fail.
    ``keeps_entrypoint``: an image may need its own entrypoint kept. ``report`` is what ``pybench doctor`` shows.
    """

    name: str
    kind: str
    examine: Callable[[], EngineFacts]
    make: Make
    launcher_type: type[_Launcher]
    tries: Callable[[_Launcher, bool], Iterable[_Launcher]]
    remedies: Mapping[str, str]
    keeps_entrypoint: bool
    report: Callable[[], Iterator[DoctorFinding]] = lambda: iter(())

    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> _Launcher:
        """Launcher whose image files are there, made if ``fetch``. Raises ``UsageError`` or ``MachineError``."""
        request, lock = needs.request, needs.lock(options)
        if refused := [name for name in request.relax if name != "network"]:
            raise UsageError(f"relax: {self.name} can't grant {refused[0]}; use docker or podman")
        locked = {
            backend: locked_image(lock, options.image or needs.image_name(backend), backend, needs.device)
            for backend in needs.backends
        }
        images, files = [], {}
        for backend, image in locked.items():
            # The digest by which a registry serves it.
            reference = next((name for name in image.references(this_platform()) if "@" in name), None)
            if reference is None:
                raise AbsentImageError(
                    f"image {image.name} is in no registry, and {self.name} makes its files from those"
                )
            file = image_path(self.kind, reference)
            if not file.exists():
                if not fetch:
                    raise AbsentImageError(f"{self.name} has no image file of {image.name}")
                notify(f"{self.name}: making an image file of {image.name}, {reference}")
            files[backend] = made_once(file, reference, self.make)
            images.append(
                ImageIdentity(
                    backend=backend,
                    name=image.name,
                    reference=reference,
                    id=file_digest(files[backend]),
                    digests=(reference.rpartition("@")[2],),
                    platform=this_platform(),
                    labels={},
                    python=None,
                    interpreter=image.interpreter,
                    entrypoint=image.entrypoint if self.keeps_entrypoint else "replace",
                    pinned=True,
                )
            )
        setup = ContainerSetup(
            engine=self.name,
            engine_version=facts.version,
            runtime=None,
            rootless=True,
            lock=lock.path,
            images=tuple(images),
            mounts=request.mounts,
            relaxations=tuple(Relaxation(name=name, reason="the suite requests it") for name in request.relax),
        )
        launcher = self.launcher_type(
            container=setup, files=files, environment_of_suite=request.environment, secrets=request.secrets
        )
        return tried(self.tries(launcher, "network" in request.relax), needs.gpu_uuids, self.remedies)

    def findings(self, facts: EngineFacts) -> Iterator[DoctorFinding]:  # noqa: ARG002 - examined anew
        """What ``report`` finds."""
        return self.report()


def image_path(kind: str, reference: str) -> Path:
    """Place of the image file of ``repository@sha256:…`` below the user's cache folder, made or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pybench" / kind / f"{reference.rpartition('@')[2].replace(':', '-')}.{kind}"


def made_once(file: Path, reference: str, make: Make) -> Path:
    """The image file ``file`` of ``reference``, made if it isn't there yet.

    Processes that need the same one wait for the first, on any host whose locks the folder's file system shares. One
    that is there is taken as it is: the folder need not be writable. Raises ``MachineError`` where it is no file.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.with_suffix(".lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if not file.exists():
                # A name of this host: where locks reach no further than it, two hosts make the file, each whole.
                scratch = file.with_name(f"{file.stem}.{os.uname().nodename}.new")
                # A killed process may have left one, and not every engine writes over a file.
                scratch.unlink(missing_ok=True)
                try:
                    make(reference, scratch)
                except BaseException:
                    scratch.unlink(missing_ok=True)
                    raise
                scratch.rename(file)
    if not file.is_file():  # a symbolic link to a file is one
        what = "a folder" if file.is_dir() else "no regular file"
        raise MachineError(f"{file}: {what} in place of the image file; remove it, then run the same command again")
    return file


def file_digest(file: Path) -> str:
    """SHA-256 of an image file: two builds of one image differ, so the image's own digest doesn't name it."""
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
