"""The hosts of a run: software, devices of a job, and clocks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pybench.model.backend import BACKENDS
from pybench.model.machine import Machine

RECORDED_PACKAGES = (
    *dict.fromkeys(package.replace("_", "-") for traits in BACKENDS.values() for package in traits.all_packages),
    *("bitsandbytes", "flash-attn", "triton", "unsloth-zoo", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
"""Packages, by their registry names, that shape a measurement where they are installed."""
OLDEST_PYTHON = (3, 10)
"""That runs a worker."""


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
"""The clock of a host to itself."""


@dataclass(frozen=True, kw_only=True)
class HostPart:
    """One host of an attempt; the run's host comes first if it takes part.

    ``ranks`` are the first rank there and how many follow from it. Paths are relative to the run's folder. ``trace`` is
    ``None`` for the reason in ``power_reason``.
    """

    name: str
    ranks: tuple[int, int]
    clock: HostClock = SAME_CLOCK
    gpu_uuids: tuple[str, ...] = ()
    trace: str | None = None
    power_reason: str | None = None
