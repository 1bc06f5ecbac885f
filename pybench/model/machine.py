"""Machines and devices, and the hosts of a run: software and clocks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from pybench.model.backend import BACKENDS

DeviceKind = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Devices:
    """``count`` GPUs, or CPU cores of a host without GPUs, on each of ``num_hosts``; unknown is ``None``.

    ``memory_bytes`` and ``compute_capability`` are the least of the GPUs. Those of another machine are ``assumed``.
    """

    kind: DeviceKind
    count: int
    num_hosts: int = 1
    memory_bytes: float | None = None
    host_memory_bytes: float | None = None
    compute_capability: tuple[int, int] | None = None
    assumed: bool = False


class IndexedGpu(Protocol):
    """A GPU by NVML's names."""

    @property
    def index(self) -> int:
        """NVML's index: CUDA's too where CUDA_DEVICE_ORDER is PCI_BUS_ID."""

    @property
    def uuid(self) -> str:
        """NVML's form, ``GPU-…``."""


_Gpu = TypeVar("_Gpu", bound=IndexedGpu)


def visible(gpus: Sequence[_Gpu], setting: str | None) -> tuple[_Gpu, ...]:
    """The GPUs that a value of CUDA_VISIBLE_DEVICES lists, by index or beginning of UUID, in its order; else all.

    As in CUDA, the first entry that is not known ends the list, and a GPU that is listed twice leaves none.
    """
    if setting is None:
        return tuple(gpus)
    kept: list[_Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        match = [g for g in gpus if (entry == str(g.index) if entry.isdigit() else entry and g.uuid.startswith(entry))]
        if len(match) != 1:
            break
        if match[0] in kept:
            return ()
        kept.append(match[0])
    return tuple(kept)


@dataclass(frozen=True, kw_only=True)
class GpuInfo:
    """One GPU; unknown is ``None``. ``fabric`` is the state of its NVSwitch fabric, ``completed`` or no CUDA starts."""

    index: int
    uuid: str
    name: str
    vram_gib: float | None
    pci_bus_id: str | None
    compute_capability: str | None
    power_limit_w: float | None
    power_limit_default_w: float | None
    sm_clock_max_hz: float | None
    memory_clock_max_hz: float | None
    ecc_enabled: bool | None
    mig_enabled: bool | None
    persistence_enabled: bool | None
    pcie_generation: int | None
    pcie_width: int | None
    num_nvlinks: int | None
    serial: str | None = None
    fabric: str | None = None


@dataclass(frozen=True, kw_only=True)
class GpuInventory:
    """GPUs that pybench may use, in PCI order; without any, ``reason`` is why, and ``remedy`` what to do about it.

    ``faults`` lists the GPUs that could not be queried and were left out, and why.
    """

    gpus: tuple[GpuInfo, ...]
    driver: str | None
    cuda_driver: str | None
    topology: tuple[tuple[str, ...], ...]
    reason: str | None
    faults: tuple[str, ...] = ()
    remedy: str | None = None


Switch = Literal["on", "off"]
Network = Literal["infiniband", "roce", "ethernet"]
"""The network between hosts that collectives use."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Snapshot of a machine; unknown is ``None``.

    ``kind`` keys profiles and expected tables (``h200``, ``cpu`` …); ``fabric`` is how the GPUs reach each other;
    ``topology[i][j]`` names the way from GPU i to GPU j as ``nvidia-smi topo -m`` does. ``gpu_faults`` lists the GPUs
    that were left out because they could not be queried; ``gpu_remedy`` is what to do where none can be used. ``cpus``
    are those that this process may run on, in order. ``cpu_quota`` is how many cores' time the control group grants,
    ``None`` for all; ``cpu_cores`` are the whole cores within it, at least 1. ``network`` joins it to the other hosts
    of a run. ``nvls`` is whether NCCL may reduce in the NVSwitches (NVLink SHARP); see :func:`nvls_of`.
    """

    kind: str
    fabric: Literal["nvlink", "pcie", "none"]
    gpu_count: int
    gpu_names: tuple[str, ...]
    gpu_vram_gib: tuple[float | None, ...]
    gpus: tuple[GpuInfo, ...]
    gpu_reason: str | None
    topology: tuple[tuple[str, ...], ...]
    driver: str | None
    cuda_driver: str | None
    cpu_model: str | None
    cpu_cores: int
    numa_nodes: int | None
    memory_bytes: int | None
    kernel: str
    operating_system: str | None
    python: str
    packages: dict[str, str]
    git_commit: str | None
    git_dirty: bool | None
    gpu_faults: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    network: Network | None = None
    gpu_remedy: str | None = None
    cpu_quota: float | None = None
    nvls: Switch = "off"

    @property
    def devices(self) -> Devices:
        """GPUs that points may occupy, or CPU cores where there is none."""
        if not self.gpus:
            return Devices("cpu", self.cpu_cores)
        matches = [re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})", gpu.compute_capability or "") for gpu in self.gpus]
        known = [(int(match[1]), int(match[2])) for match in matches if match is not None]
        capability = min(known) if len(known) == len(matches) else None
        return Devices("cuda", len(self.gpus), 1, self.gpu_memory_bytes, self.memory_bytes, capability)

    @property
    def unused_gpus(self) -> tuple[str, ...]:
        """Notes for the user: GPUs that a run leaves out, with the reason."""
        if not self.gpus and (self.driver is not None or self.gpu_remedy is not None):
            return (f"{self.gpu_reason}; points run on CPU cores",)
        return tuple(f"{fault}; left out" for fault in self.gpu_faults)

    @property
    def gpu_memory_bytes(self) -> float | None:
        """Memory of the smallest GPU; ``None`` without GPUs, or if the driver does not report it for all."""
        sizes_gib = [gpu.vram_gib for gpu in self.gpus if gpu.vram_gib is not None]
        return min(sizes_gib) * 2**30 if sizes_gib and len(sizes_gib) == len(self.gpus) else None

    @property
    def cpu_ranges(self) -> str:
        """The CPUs of :attr:`cpus` as ``taskset -c`` takes them: ``0-3,8``."""
        runs = [list(run) for _, run in groupby(enumerate(self.cpus), lambda pair: pair[1] - pair[0])]
        ends = [(run[0][1], run[-1][1]) for run in runs]
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def nvls_of(gpus: Sequence[GpuInfo], environment: Mapping[str, str]) -> Switch:
    """``on`` if several GPUs' NVSwitch fabric is up and ``NCCL_NVLS_ENABLE`` does not forbid it, else ``off``."""
    is_up = len(gpus) > 1 and all(gpu.fabric == "completed" for gpu in gpus)
    return "on" if is_up and environment.get("NCCL_NVLS_ENABLE", "").strip() != "0" else "off"


@dataclass(frozen=True, kw_only=True)
class DoctorFinding:
    """One thing ``pybench doctor`` looked at, and what to do about it (empty when all is well)."""

    name: str
    state: Literal["ok", "warning", "missing"]
    found: str
    remedy: str = ""

    @classmethod
    def ok(cls, name: str, found: str) -> DoctorFinding:
        """All is well."""
        return cls(name=name, state="ok", found=found)

    @classmethod
    def warning(cls, name: str, found: str, remedy: str) -> DoctorFinding:
        """Something changes the figures; ``remedy`` is what to do about it."""
        return cls(name=name, state="warning", found=found, remedy=remedy)


RECORDED_PACKAGES = (
    *dict.fromkeys(package.replace("_", "-") for traits in BACKENDS.values() for package in traits.all_packages),
    *("bitsandbytes", "flash-attn", "triton", "unsloth-zoo", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
"""Packages, by their registry names, that shape a measurement where they are installed."""
OLDEST_PYTHON = (3, 10)


@dataclass(frozen=True, kw_only=True)
class Software:
    """A Python's version and those of the packages of ``RECORDED_PACKAGES`` that it has."""

    python: str
    packages: dict[str, str]


@cache
def this_build() -> str:
    """A digest of the installed package, 16 hexadecimal digits: its Python source and its compiled extensions."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted((*package.rglob("*.py"), *package.glob("*.so"))):
        digest.update(file.relative_to(package).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


CLOCK_LIMIT_NS = 1_000_000
"""Clocks joined less closely than this leave joules and phases over several hosts unknown."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A job's GPUs on one host, by UUID; empty for a CPU point. The run's own host has no name here."""

    host: str = ""
    gpu_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Host:
    """One host as it stood when it joined a run.

    ``boot_id`` and ``time_offset_ns`` identify its CLOCK_MONOTONIC. ``build`` is its pybench; ``worker_sha256`` covers
    the worker's source of its installation, ``images`` are digests of what its engine would start, ``environment`` what
    tunes its workers, without secrets. ``power_reason`` is why its power is unknown, ``None`` where it is sampled.
    """

    name: str
    machine: Machine
    boot_id: str
    time_offset_ns: int
    pybench_version: str
    worker_sha256: str
    engine: str = "none"
    images: tuple[str, ...] = ()
    software: Software | None = None
    environment: dict[str, str] = field(default_factory=dict)
    power_reason: str | None = None
    build: str = ""

    @property
    def clock(self) -> tuple[str, int]:
        """The values that every header of its ranks must have."""
        return self.boot_id, self.time_offset_ns

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Its GPUs, in their order."""
        return tuple(gpu.uuid for gpu in self.machine.gpus)


@dataclass(frozen=True, kw_only=True)
class HostClock:
    """A host's CLOCK_MONOTONIC less that of the run's own host: ``offset_ns``, certain to ``bound_ns`` either way."""

    offset_ns: int = 0
    bound_ns: int = 0

    @property
    def is_close(self) -> bool:
        """Whether times of both hosts can be joined."""
        return self.bound_ns <= CLOCK_LIMIT_NS

    def over_time(self, after: HostClock) -> HostClock:
        """The clock as it was measured before a while, with a bound that holds all through it: clocks drift."""
        drift_ns = abs(after.offset_ns - self.offset_ns)
        return replace(self, bound_ns=max(self.bound_ns, drift_ns + after.bound_ns))


@dataclass(frozen=True)
class RoundTrip:
    """A message sent at ``sent_ns``, read there at ``there_ns``, back at ``back_ns``: each host's CLOCK_MONOTONIC."""

    sent_ns: int
    there_ns: int
    back_ns: int


def clock_of(trips: Sequence[RoundTrip]) -> HostClock:
    """The other host's clock less this one's.

    Each answer came between the two times of its message here, so the offset is within the intersection of all trips'
    intervals (Cristian, "Probabilistic clock synchronization", 1989). Raises ``ValueError`` without a trip, or where no
    offset fits all of them: a clock jumped.
    """
    if not trips:
        raise ValueError("no message came back")
    low_ns = max(trip.there_ns - trip.back_ns for trip in trips)
    high_ns = min(trip.there_ns - trip.sent_ns for trip in trips)
    if low_ns > high_ns:
        raise ValueError("one of the two clocks jumped between messages")
    offset_ns = (low_ns + high_ns) // 2
    return HostClock(offset_ns=offset_ns, bound_ns=high_ns - offset_ns)


SAME_CLOCK = HostClock()


@dataclass(frozen=True, kw_only=True)
class HostPart:
    """One host of an attempt, the run's first; ``ranks`` are the first rank there and how many follow from it.

    Paths are relative to the run's folder. ``trace`` is ``None`` for the reason in ``power_reason``.
    """

    name: str
    ranks: tuple[int, int]
    clock: HostClock = SAME_CLOCK
    gpu_uuids: tuple[str, ...] = ()
    trace: str | None = None
    power_reason: str | None = None
