"""What a suite asks of a launcher."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.container import ContainerRequest
from pybench.model.suite import DeviceKind


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which backends run on what, in which container. ``engine`` is that of a run to go on with."""

    backends: tuple[str, ...]
    device: DeviceKind
    request: ContainerRequest
    engine: str | None = None
