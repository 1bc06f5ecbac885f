"""What engines that start image files have in common: files in the user's cache, no daemon and no store of images."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pybench.model.container import ContainerSetup, EngineFacts, ImageIdentity, Relaxation
from pybench.model.errors import MachineError, UsageError
from pybench.model.machine import DoctorFinding
from pybench.run.engines.base import Engine, EngineOptions, LaunchRequirements, Notify
from pybench.run.engines.image_launcher import ImageFileLauncher
from pybench.run.images.lock import AbsentImageError, locked_image, this_platform

Files = Mapping[str, Path]
"""Image file of each backend."""


@dataclass(frozen=True)
class ImageFileEngine(Engine):
    """An engine whose images are files of the suffix ``kind``, which ``make`` writes by their locked digests.

    ``examine`` describes an installed engine. ``prepare`` makes the launcher of a run, whose container names the
    relaxations that the suite requests. ``honours_entrypoint``: an image may need its own entrypoint kept.
    ``report`` is what ``pybench doctor`` shows beyond the version.
    """

    name: str
    kind: str
    examine: Callable[[], EngineFacts]
    make: Make
    prepare: Callable[[ContainerSetup, Files, LaunchRequirements], ImageFileLauncher]
    honours_entrypoint: bool
    report: Callable[[], Iterator[DoctorFinding]] = lambda: iter(())

    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> ImageFileLauncher:
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
                    entrypoint=image.entrypoint if self.honours_entrypoint else "replace",
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
        return self.prepare(setup, files, needs)

    def findings(self, facts: EngineFacts) -> Iterator[DoctorFinding]:  # noqa: ARG002 - examined anew
        """What ``report`` finds."""
        return self.report()


Make = Callable[[str, Path], None]
"""Writes the image file of ``repository@sha256:…`` to a path where no file is. Raises ``MachineError``."""


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
