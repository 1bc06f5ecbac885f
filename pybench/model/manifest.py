"""The manifest of a run: its options, plan and machine; written before the first attempt and at the end."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Literal

from pybench.model.container import ContainerSetup
from pybench.model.machine import DeviceKind, GpuInfo, Host, Machine, Software
from pybench.model.suite import ExpectedTable, Plan, Suite
from pybench.model.verdict import Prediction


@dataclass(frozen=True, kw_only=True)
class Containment:
    """The workers' container or host; ``images`` by digest, ``relaxations`` by name."""

    engine: str
    engine_version: str | None
    images: tuple[str, ...]
    pinned: bool
    relaxations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EnergyScope:
    """Joules of a run: ``scope`` is ``gpu_board``, or ``module`` with its CPU; ``note`` is for comparisons."""

    scope: str
    excluded: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Time, software and machine of a run; ``None`` or nothing in runs of versions that did not record a field.

    ``gpu_names`` has one entry for each GPU of the machine, ``packages`` the versions that the workers saw, ``engine``
    what they ran in (``none``: not containerised, and no ``containment``). ``driver`` is the host's, ``worker_driver``
    the one that workers saw, ``forward_compatible`` whether any used a newer libcuda than it. ``environment`` holds the
    variables that reach workers and tune them, without secrets. ``gpus`` are the GPUs of the machine;
    ``topology[i][j]`` names the way from GPU i to GPU j as ``nvidia-smi topo -m`` does. ``energy_scope`` is ``None``
    where no energy was measured; ``finished_utc`` is when the last attempt ended; ``worker_sha256`` covers the source
    of the workers, which is what a run measures with. ``hosts`` are those of a run over several, whose clocks were
    joined to within ``clock_bound_s``.
    """

    created_utc: str
    pybench_version: str
    engine: str
    containment: Containment | None
    gpu_names: tuple[str, ...]
    driver: str | None
    worker_driver: str | None
    forward_compatible: bool | None
    cpu_model: str | None
    kernel: str
    packages: dict[str, str]
    environment: dict[str, str] | None = None
    gpus: tuple[GpuInfo, ...] = ()
    fabric: str | None = None
    hosts: tuple[str, ...] = ()
    clock_bound_s: float | None = None
    topology: tuple[tuple[str, ...], ...] = ()
    energy_scope: EnergyScope | None = None
    finished_utc: str | None = None
    worker_sha256: str | None = None


_HOUR_S, _MINUTE_S = 3600, 60
MOST_TIME_S = 7 * 24 * _HOUR_S

PartOf = Literal["ab", "aa"]
"""The option of ``pybench run`` that marks one of several runs: a history leaves such runs out."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options by name; ``None`` and ``()`` leave the suite as it is. ``time_limit_s`` is for all attempts together."""

    profile: str | None = None
    keep: str | None = None
    max_gpus: int | None = None
    require: str | None = None
    attempts: int | None = None
    steps: int | None = None
    settings: tuple[str, ...] = ()
    time_limit_s: float | None = None

    def words(self) -> tuple[str, ...]:
        """Each option in its written form, such as ``--set batch_size=1``; the suite has the profile."""
        limit = None if self.time_limit_s is None else duration_text(self.time_limit_s)
        named = (
            ("-k", self.keep),
            ("--max-gpus", self.max_gpus),
            ("--require", self.require),
            *(("--set", word) for word in self.settings),
            ("--attempts", self.attempts),
            ("--steps", self.steps),
            ("--time-limit", limit),
        )
        return tuple(f"{option} {shlex.quote(str(value))}" for option, value in named if value is not None)


def duration_text(seconds: float) -> str:
    """A length in the form of ``--time-limit``: ``1h30m``, ``20m``, ``90s``."""
    whole = round(seconds)
    hours, minutes, rest = whole // _HOUR_S, whole % _HOUR_S // _MINUTE_S, whole % _MINUTE_S
    if rest and whole < 10 * _MINUTE_S:
        return f"{whole}s"
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def time_limit_text(seconds: float) -> str:
    """The option as it is written."""
    return f"--time-limit {duration_text(seconds)}"


NO_OPTIONS = PlanOptions()

MANIFEST_FILE = "manifest.json"

# 1: first form. 2: begins with a checksum. 3: expectations and rows of tables carry their form.
# 4: options of the command line by name. 5: vram_gib, which was vram_gb.
MANIFEST_VERSION = 5


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that a report or a resumed run needs in addition to the journal.

    ``build`` is the pybench that planned the run, "" in runs of builds that did not record it. ``worker_sha256`` covers
    the worker's source as staged; ``options`` are what the command line changed of the suite; ``part_of`` is ``None``
    for a run by itself; ``power_reason`` is why power is unknown, ``None`` when it is sampled; ``container`` is
    ``None`` when workers ran in this machine's own Python; ``software`` is that Python's, ``None`` where an image
    brings it. ``environment`` holds the variables that reach workers and tune them, without secrets. ``predictions``
    are what the node's own rates predict of the measured run: the manifest is written again with them. ``machines`` are
    the hosts of a run over several: the leading host, whose ``machine`` is the run's, then the others by name.
    """

    run_id: str
    created_utc: str
    pybench_version: str
    suite: Suite
    plan: Plan
    device: DeviceKind
    machine: Machine
    fingerprint: str
    tables: dict[str, ExpectedTable]
    worker_sha256: str
    engine: str
    options: PlanOptions = field(default_factory=PlanOptions)
    part_of: PartOf | None = None
    power_reason: str | None = None
    container: ContainerSetup | None = None
    environment: dict[str, str] = field(default_factory=dict)
    software: Software | None = None
    machines: tuple[Host, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    build: str = ""
    version: int = MANIFEST_VERSION
