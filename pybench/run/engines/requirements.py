"""What a run requires of a launcher, and what the command line chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pybench.model.container import ContainerRequest, ContainerSetup, ImageLock
from pybench.model.machine import DeviceKind
from pybench.run.images.lock import default_lock, read_lock


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The command line's part. ``image`` overrides the lock and the suite; ``python`` is for engine ``none``."""

    engine: str = "auto"
    image: str | None = None
    allow_unpinned: bool = False
    lock: Path | None = None
    python: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchRequirements:
    """Which backends run on what, in which container; ``gpu_uuids`` are those of the largest point.

    ``engine`` and ``began`` are those of a resumed run: it keeps its engine, its lock and its images.
    """

    backends: tuple[str, ...]
    device: DeviceKind
    request: ContainerRequest
    gpu_uuids: tuple[str, ...] = ()
    engine: str | None = None
    began: ContainerSetup | None = None

    def image_name(self, backend: str) -> str | None:
        """Image that is requested by name, ``None`` for the backend's own."""
        before = self.began.images if self.began else ()
        return next((image.name for image in before if image.backend == backend), self.request.image)

    def lock(self, options: EngineOptions) -> ImageLock:
        """The image lock that applies. Raises ``FileError``."""
        return read_lock(options.lock or (Path(self.began.lock) if self.began else default_lock()))
