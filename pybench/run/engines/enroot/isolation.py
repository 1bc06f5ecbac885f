"""What enroot keeps a worker from seeing of its host: options that not every version has and not every host takes."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.machine.command import run_command
from pybench.model.container import Relaxation
from pybench.run.engines.base import Argv

NAMESPACES = ("pid", "net", "ipc")
"""Options of ``enroot start`` since its version after 4.1.2."""
_SHARED = {
    "pid": Relaxation(name="host_pids", reason="enroot here has no namespace of processes"),
    "net": Relaxation(name="network", reason="enroot here has no namespace of the network"),
    "devices": Relaxation(name="gpu_files", reason="enroot here can't restrict /dev; CUDA gets the requested GPUs"),
}
_NEVER_BOUNDED = (
    Relaxation(name="pids_limit", reason="enroot bounds no pids"),
    Relaxation(name="shm_size", reason="enroot has no size for /dev/shm, which may be the host's"),
)


@dataclass(frozen=True)
class Isolation:
    """``namespaces`` of the worker's own, of ``NAMESPACES``; ``devices``: only devices of the point in /dev."""

    namespaces: tuple[str, ...]
    devices: bool = True

    @property
    def options(self) -> Argv:
        """Options of ``enroot start``."""
        return tuple(f"--{name}" for name in self.namespaces)

    @property
    def environment(self) -> dict[str, str]:
        """Settings of enroot; its option ``--ipc`` restricts /dev by itself."""
        return {"ENROOT_RESTRICT_DEV": "y" if self.devices else "n"}

    def relaxations(self, *, online: bool) -> tuple[Relaxation, ...]:
        """In what workers are less confined than in other engines; ``online``: the suite requests the network."""
        kept = {*self.namespaces, *(("devices",) if self.devices else ()), *(("net",) if online else ())}
        return (*_NEVER_BOUNDED, *(shared for name, shared in _SHARED.items() if name not in kept))


def isolations(*, online: bool) -> tuple[Isolation, ...]:
    """What this enroot can be requested, the most isolated first; ``online`` workers share the host's network."""
    known = available_namespaces()
    wanted = tuple(name for name in known if not (online and name == "net"))
    tries = [
        Isolation(tuple(name for name in wanted if name not in without), devices="ipc" not in without)
        for without in ((), ("ipc",), ("net",), ("ipc", "net"), NAMESPACES)
    ]
    return tuple(dict.fromkeys(tries))


def available_namespaces() -> tuple[str, ...]:
    """Namespaces that the installed enroot has options for."""
    words = run_command(("enroot", "start", "--help")).out.split()
    return tuple(name for name in NAMESPACES if f"--{name}" in words)
