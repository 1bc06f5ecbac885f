"""Processes that compute on the GPUs, with facts of the kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pybench.machine.nvml import NvmlError, query, returned_within, session
from pybench.model.record import GpuProcess

# PROC_PID_INIT_INO of include/linux/proc_ns.h: the PID namespace in which the kernel itself counts.
_FIRST_NAMESPACE = "pid:[4026531836]"
_MAX_ENVIRONMENT_BYTES = 2**21
_LOOK_LIMIT_S = 5.0
# By these names they work with any driver since 510; by others they fail with some.
_LISTS = ("DeviceGetComputeRunningProcesses_v3", "DeviceGetMPSComputeRunningProcesses_v3")


@dataclass(frozen=True, kw_only=True)
class ProcessFacts:
    """The kernel's facts of a process.

    ``ancestors`` are the ids of its parent, the parent's and so on. ``environment`` is ``None`` where this user may not
    read it. ``cgroup`` names the groups it is in; ``in_container`` is whether it has a PID namespace of its own.
    """

    name: str
    ancestors: tuple[int, ...]
    environment: tuple[bytes, ...] | None
    cgroup: str
    in_container: bool


Sighting = tuple[GpuProcess, ProcessFacts]


def sees_driver_pids(proc: Path = Path("/proc")) -> bool:
    """Whether the driver's process ids are this process's own: in a container they belong to other processes."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return False


class ProcessWatch:
    """Collects the processes of GPUs, looked at with :meth:`look`; none where their ids are not this process's own."""

    def __init__(self) -> None:
        self._can_see = sees_driver_pids()
        self._seen: dict[tuple[str, int], Sighting] = {}

    def look(self, handles: Mapping[str, Any]) -> None:
        """Read the processes of each GPU, by UUID, through its NVML handle."""
        if not self._can_see:
            return
        for uuid, handle in handles.items():
            # Clients of a server (MPS) are listed separately.
            for process in (process for call in _LISTS for process in query(call, handle) or ()):
                place, memory_bytes, now_ns = (uuid, process.pid), process.usedGpuMemory, time.monotonic_ns()
                if (known := self._seen.get(place)) is not None:
                    seen, facts = known
                    most = max((each for each in (seen.memory_bytes, memory_bytes) if each is not None), default=None)
                    self._seen[place] = replace(seen, memory_bytes=most, last_ns=now_ns), facts
                elif (facts_now := facts_of(process.pid)) is not None:
                    seen = GpuProcess(
                        uuid=uuid,
                        pid=process.pid,
                        name=facts_now.name,
                        memory_bytes=memory_bytes,
                        first_ns=now_ns,
                        last_ns=now_ns,
                    )
                    self._seen[place] = seen, facts_now

    def sightings(self) -> tuple[Sighting, ...]:
        """All processes so far."""
        return tuple(self._seen.values())


def look_once(uuids: Sequence[str], limit_s: float = _LOOK_LIMIT_S) -> tuple[Sighting, ...]:
    """Processes on the GPUs now; none where there is no driver, or none that answers in time."""
    watch = ProcessWatch()

    def look() -> None:
        with suppress(NvmlError), session():
            handles = {uuid: query("DeviceGetHandleByUUID", uuid) for uuid in uuids}
            watch.look({uuid: handle for uuid, handle in handles.items() if handle is not None})

    returned_within(limit_s, look)
    return watch.sightings()


def facts_of(pid: int, proc: Path = Path("/proc")) -> ProcessFacts | None:
    """The kernel's facts of a process; ``None`` where it has ended, or is hidden from this user."""
    try:
        name, status, cgroup = (_text(proc, pid, file) for file in ("comm", "status", "cgroup"))
    except OSError:
        return None
    namespaces = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    environment = None
    with suppress(OSError), (proc / str(pid) / "environ").open("rb") as stream:
        environment = tuple(stream.read(_MAX_ENVIRONMENT_BYTES).split(b"\0"))
    ancestors: list[int] = []
    with suppress(OSError):
        while pid > 1 and pid not in ancestors[:-1]:
            # The name in parentheses may hold anything: fields are counted behind it (proc(5)).
            pid = int(_text(proc, pid, "stat").rpartition(")")[2].split()[1])
            ancestors.append(pid)
    return ProcessFacts(
        name=name.strip(),
        ancestors=tuple(ancestors),
        environment=environment,
        cgroup=cgroup,
        in_container=len(namespaces) > 1,
    )


def _text(proc: Path, pid: int, file: str) -> str:
    return (proc / str(pid) / file).read_text(encoding="utf-8", errors="replace")
