"""The engine apptainer: image files made from locked digests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pybench.engines.apptainer.launcher import ApptainerLauncher, build_argv
from pybench.engines.base import ImageStore, Notify
from pybench.engines.error import engine_error
from pybench.engines.image_file import identity, image_file, registry_reference
from pybench.engines.requirements import EngineOptions, LaunchRequirements
from pybench.images.selection import locked_image
from pybench.machine.command import run_command
from pybench.model.container import ContainerSetup, EngineFacts, Relaxation
from pybench.model.errors import UsageError
from pybench.model.machine import Finding

# Turning an image of 10 GB into one file takes minutes, on a slow disk many.
_BUILD_LIMIT_S = 7200.0
_NEVER_BOUNDED = (
    Relaxation(name="pids_limit", reason="apptainer bounds no pids"),
    Relaxation(name="shm_size", reason="apptainer has no size for /dev/shm"),
    Relaxation(
        name="gpu_files", reason="--nv shows every GPU's device files; CUDA is restricted to the requested ones"
    ),
)


@dataclass(frozen=True)
class ApptainerEngine:
    """Starts image files as child processes; it has no daemon and no store of images."""

    name: str = "apptainer"

    def find(self) -> EngineFacts:
        """Look whether it is installed and works."""
        if shutil.which(self.name) is None:
            return EngineFacts(name=self.name, version=None, reason=f"{self.name} is not installed")
        result = run_command((self.name, "--version"))
        if not result.ok:
            return EngineFacts(
                name=self.name, version=None, reason=f"apptainer does not work here: {result.error_line}"
            )
        version = result.out.split()[-1] if result.out.split() else None
        return EngineFacts(name=self.name, version=version, rootless=True)

    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> ApptainerLauncher:
        """Launcher whose image files are there, made if ``fetch``. Raises ``UsageError`` or ``MachineError``."""
        request, lock = needs.request, needs.lock(options)
        if refused := [name for name in request.relax if name != "network"]:
            raise UsageError(f"relax: apptainer can't grant {refused[0]}; use docker or podman")
        locked = {
            backend: locked_image(lock, options.image or needs.image_name(backend), backend, needs.device)
            for backend in needs.backends
        }
        files = {
            backend: image_file(self.name, "sif", image, build_image, notify, fetch=fetch)
            for backend, image in locked.items()
        }
        requested = tuple(Relaxation(name=name, reason="the suite requests it") for name in request.relax)
        setup = ContainerSetup(
            engine=self.name,
            engine_version=facts.version,
            runtime=None,
            rootless=True,
            lock=lock.path,
            images=tuple(
                identity(backend, image, registry_reference(self.name, image), files[backend], "replace")
                for backend, image in locked.items()
            ),
            mounts=request.mounts,
            relaxations=(*_NEVER_BOUNDED, *requested),
        )
        return ApptainerLauncher(
            container=setup,
            files=files,
            offline="network" not in request.relax,
            environment_of_suite=request.environment,
            secrets=request.secrets,
        )

    def findings(self, facts: EngineFacts) -> Iterator[Finding]:
        """Nothing beyond its version."""
        del facts
        return iter(())

    def store(self, facts: EngineFacts) -> ImageStore | None:
        """None: image files are made by digest when a run needs them."""
        del facts
        return None


def build_image(reference: str, file: Path) -> None:
    """Write the image ``repository@sha256:…`` to ``file``. Raises ``MachineError``."""
    answer = run_command(build_argv(reference, file), _BUILD_LIMIT_S)
    if not answer.ok:
        failed = f"can't make an image file of {reference}"
        raise engine_error("apptainer", str(file.parent), failed, answer.error_line)


ENGINE = ApptainerEngine()
