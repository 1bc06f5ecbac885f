"""The hosts of a run: who they are, which of their devices a job has, and how their clocks lie to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from pybench.model.machine import Machine
from pybench.model.software import Software

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
        """What every header of its ranks must have."""
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


SAME_CLOCK = HostClock()
"""Of a host to itself."""


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
