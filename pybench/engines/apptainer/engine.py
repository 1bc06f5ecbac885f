"""The engine apptainer: image files made from locked digests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pybench.engines.apptainer.launcher import ApptainerLauncher
from pybench.engines.apptainer.sif_cache import file_digest, sif_file, sif_folder, sif_path
from pybench.engines.base import ImageStore, Notify
from pybench.engines.requirements import EngineOptions, LaunchRequirements
from pybench.images.selection import AbsentImageError, locked_image, this_platform
from pybench.machine.command import run_command
from pybench.model.container import ContainerSetup, EngineFacts, ImageIdentity, Relaxation
from pybench.model.errors import UsageError
from pybench.model.image import LockedImage
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
        files = {backend: _file(image, notify, build=fetch) for backend, image in locked.items()}
        requested = tuple(Relaxation(name=name, reason="the suite requests it") for name in request.relax)
        setup = ContainerSetup(
            engine=self.name,
            engine_version=facts.version,
            runtime=None,
            rootless=True,
            lock=lock.path,
            images=tuple(_identity(backend, image, files[backend]) for backend, image in locked.items()),
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


def _file(image: LockedImage, notify: Notify, *, build: bool) -> Path:
    reference = _reference(image)
    file = sif_path(sif_folder(), reference)
    if not build and not file.exists():
        raise AbsentImageError(f"apptainer has no image file of {image.name}")
    if not file.exists():
        notify(f"apptainer: making an image file of {image.name}, {reference}")
    return sif_file(sif_folder(), reference, partial(run_command, limit_s=_BUILD_LIMIT_S))


def _reference(image: LockedImage) -> str:
    named = [name for name in image.references(this_platform()) if "@" in name]
    if not named:
        raise AbsentImageError(f"image {image.name} is in no registry, and apptainer makes its files from those")
    return named[0]


def _identity(backend: str, image: LockedImage, file: Path) -> ImageIdentity:
    reference = _reference(image)
    return ImageIdentity(
        backend=backend,
        name=image.name,
        reference=reference,
        id=file_digest(file),
        digests=(reference.rpartition("@")[2],),
        platform=this_platform(),
        labels={},
        python=None,
        interpreter=image.interpreter,
        entrypoint="replace",
        pinned=True,
    )


ENGINE = ApptainerEngine()
