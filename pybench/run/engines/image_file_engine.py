"""What engines that start image files have in common: no daemon and no store of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pybench.model.container import ContainerSetup, EngineFacts, Relaxation
from pybench.model.errors import UsageError
from pybench.model.machine import DoctorFinding
from pybench.run.engines.base import ImageStore, Notify, facts_of_command
from pybench.run.engines.image_file import Make, identity, image_file, registry_reference
from pybench.run.engines.image_file_launcher import ImageFileLauncher
from pybench.run.engines.requirements import EngineOptions, LaunchRequirements
from pybench.run.images.selection import locked_image

Files = Mapping[str, Path]
"""Image file of each backend."""


@dataclass(frozen=True)
class ImageFileEngine:
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

    def find(self) -> EngineFacts:
        """Look whether it is installed and works."""
        return facts_of_command(self.name, self.examine)

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
        files = {
            backend: image_file(self.name, self.kind, image, self.make, notify, fetch=fetch)
            for backend, image in locked.items()
        }
        setup = ContainerSetup(
            engine=self.name,
            engine_version=facts.version,
            runtime=None,
            rootless=True,
            lock=lock.path,
            images=tuple(
                identity(
                    backend,
                    image,
                    registry_reference(self.name, image),
                    files[backend],
                    image.entrypoint if self.honours_entrypoint else "replace",
                )
                for backend, image in locked.items()
            ),
            mounts=request.mounts,
            relaxations=tuple(Relaxation(name=name, reason="the suite requests it") for name in request.relax),
        )
        return self.prepare(setup, files, needs)

    def findings(self, facts: EngineFacts) -> Iterator[DoctorFinding]:
        """What ``report`` finds."""
        del facts
        return self.report()

    def store(self, facts: EngineFacts) -> ImageStore | None:
        """None: image files are made by digest when a run needs them."""
        del facts
        return None
