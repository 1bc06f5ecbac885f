"""The common part of all launchers of images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import ClassVar

from pybench.model.container import ContainerSetup, ImageIdentity, Mount
from pybench.model.tuning import LOOPBACK
from pybench.model.wire import SHARED_VARIABLE
from pybench.run.engines.base import Argv, Launch, Launcher
from pybench.run.engines.environment import fixed, tuning
from pybench.run.engines.process import WorkerProcess

STAGE = PurePosixPath("/pybench/stage")
EXCHANGE = PurePosixPath("/pybench/exchange")
COMPILED = PurePosixPath("/pybench/compiled")
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
    """Base of the launchers whose workers run in images: ``container`` is what all jobs of the run have in common."""

    container: ContainerSetup
    environment_of_suite: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """Name of the engine, for the manifest."""
        return self.container.engine

    def image(self, job: Launch) -> ImageIdentity:
        """The image of the job's backend."""
        return next(image for image in self.container.images if image.backend == job.backend)

    def worker_arguments(self, job: Launch) -> Argv:
        """Arguments of the image's Python for a worker."""
        script = STAGE / job.script.relative_to(job.stage).as_posix()
        return ("-I", "-B", str(script), str(EXCHANGE), *job.rank_options)

    def tuning(self, host: Mapping[str, str]) -> dict[str, str]:
        """The suite's over the shell's, then the secrets."""
        return self._tuning({**host, **LOOPBACK})

    def variables(self, job: Launch) -> dict[str, str]:
        """What tunes the job's worker; compiled code goes to the run's folder unless the suite names another."""
        tuned = self.tuning(job.host_environment) if job.meeting is None else self._tuning(job.host_environment)
        return {**({name: str(path) for name, path in _COMPILED_AT.items()} if job.compiled else {}), **tuned}

    def writable(self, job: Launch) -> tuple[Mount, ...]:
        """Mounts that the worker may write."""
        compiled = (Mount(source=str(job.compiled), target=str(COMPILED)),) if job.compiled else ()
        return (Mount(source=str(job.exchange), target=str(EXCHANGE)), *compiled)

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
