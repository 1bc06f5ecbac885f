"""What a suite asks of a launcher."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.container import ContainerRequest, ContainerSetup
from pybench.model.suite import DeviceKind


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which backends run on what, in which container; ``gpu_uuids`` are those of the largest point.

    ``engine`` and ``began`` are those of a run to go on with: it keeps its engine, its lock and its images.
    """

    backends: tuple[str, ...]
    device: DeviceKind
    request: ContainerRequest
    gpu_uuids: tuple[str, ...] = ()
    engine: str | None = None
    began: ContainerSetup | None = None

    def image_name(self, backend: str) -> str | None:
        """Image that is asked for by name, ``None`` for the backend's own."""
        before = self.began.images if self.began else ()
        return next((image.name for image in before if image.backend == backend), self.request.image)
