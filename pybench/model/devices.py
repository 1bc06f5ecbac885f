"""What the points of a plan may occupy on each of its hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Devices:
    """``count`` GPUs, or CPU cores where there is none, on each of ``num_hosts``.

    ``memory_bytes`` is that of the GPU that has least, ``host_memory_bytes`` that of a host, ``compute_capability`` the
    least of the GPUs; ``None`` is unknown. Those of a plan for another machine are ``assumed``.
    """

    kind: DeviceKind
    count: int
    num_hosts: int = 1
    memory_bytes: float | None = None
    host_memory_bytes: float | None = None
    compute_capability: tuple[int, int] | None = None
    assumed: bool = False
