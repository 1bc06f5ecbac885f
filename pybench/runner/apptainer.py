"""A launcher for apptainer: image files made from locked digests."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pybench.launch.apptainer import ApptainerLauncher
from pybench.machine.command import ask
from pybench.machine.engines import this_platform
from pybench.model.container import ContainerSetup, EngineFacts, ImageIdentity, Relaxation
from pybench.model.errors import UsageError
from pybench.model.image import ImageLock, LockedImage
from pybench.runner.asked import Asked
from pybench.runner.locked_images import AbsentImageError, Tell, locked_image
from pybench.runner.sif_cache import file_digest, sif_file, sif_folder, sif_path

# Turning an image of 10 GB into one file takes minutes, on a slow disk many.
_BUILD_LIMIT_S = 7200.0
_NEVER_BOUNDED = (
    Relaxation(name="pids_limit", reason="apptainer bounds no pids"),
    Relaxation(name="shm_size", reason="apptainer has no size for /dev/shm"),
    Relaxation(name="gpu_files", reason="--nv shows the device files of every GPU; CUDA is told which to use"),
)


def apptainer_launcher(
    facts: EngineFacts, lock: ImageLock, name: str | None, asked: Asked, tell: Tell, *, build: bool
) -> ApptainerLauncher:
    """Launcher whose image files are there, made if ``build``. Raises ``UsageError`` or ``MachineError``."""
    request = asked.request
    if unknown := [wish for wish in request.relax if wish != "network"]:
        raise UsageError(f"relax: apptainer can't grant {unknown[0]}; use docker or podman")
    locked = {
        backend: locked_image(lock, name or asked.image_name(backend), backend, asked.device)
        for backend in asked.backends
    }
    files = {backend: _file(image, tell, build=build) for backend, image in locked.items()}
    asked_for = tuple(Relaxation(name=wish, reason="the suite asks for it") for wish in request.relax)
    setup = ContainerSetup(
        engine="apptainer",
        engine_version=facts.version,
        runtime=None,
        rootless=True,
        lock=lock.path,
        images=tuple(_identity(backend, image, files[backend]) for backend, image in locked.items()),
        mounts=request.mounts,
        relaxations=(*_NEVER_BOUNDED, *asked_for),
    )
    return ApptainerLauncher(
        container=setup,
        files=files,
        offline="network" not in request.relax,
        environment_of_suite=request.environment,
        secrets=request.secrets,
    )


def _file(image: LockedImage, tell: Tell, *, build: bool) -> Path:
    reference = _reference(image)
    file = sif_path(sif_folder(), reference)
    if not build and not file.exists():
        raise AbsentImageError(f"apptainer has no image file of {image.name}")
    if not file.exists():
        tell(f"apptainer: making an image file of {image.name}, {reference}")
    return sif_file(sif_folder(), reference, partial(ask, limit_s=_BUILD_LIMIT_S))


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
        verified=image.verified_by is not None,
    )
