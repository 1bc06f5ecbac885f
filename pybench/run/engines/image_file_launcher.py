"""What launchers of image files have in common: the worker is a child process, and an end leaves nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pybench.model.container import ContainerRun
from pybench.model.wire import Failure
from pybench.run.engines.base import Argv, Launch
from pybench.run.engines.environment import fixed
from pybench.run.engines.image_launcher import ImageLauncher
from pybench.run.engines.process import WorkerProcess, end_marked


@dataclass(frozen=True, kw_only=True)
class ImageFileLauncher(ImageLauncher, ABC):
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

    def verify(self, container: ContainerRun | None, job: Launch, log: Path) -> Failure | None:
        """Nothing to read back: the image is the file that was named, which the engine opens itself."""
        del container, job, log
        return None

    def close(self) -> None:
        """Nothing is kept: each worker has its own container."""

    def remove_leftovers(self, run_mark: str) -> None:
        """End workers of a killed runner; nothing else stays of them."""
        end_marked(f"{run_mark}/")

    def inside(self, job: Launch) -> dict[str, str]:
        """Variables of the worker."""
        secrets = {name: job.host_environment[name] for name in self.secrets}
        return {**self.variables(job), **fixed(job.gpu_uuids), **secrets}


def shown_gpus(job: Launch) -> dict[str, str]:
    """What nvidia-container-cli reads in the client's environment: the GPUs of the job alone."""
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(job.gpu_uuids) or "void"}
