"""Time, software and machine of a run, and the scope of its joules."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.machine import GpuInfo


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
    """The parts of a machine that the joules of a run include or leave out.

    ``scope`` is ``gpu_board``, or ``module`` where the sensor includes a module's CPU. ``note`` is
    what that means for comparisons.
    """

    scope: str
    excluded: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Time, software and machine of a run.

    ``gpu_names`` has one entry for each GPU of the machine, ``packages`` the versions that the workers saw, ``engine``
    what they ran in (``none``: not containerised, and no ``containment``). ``driver`` is the host's, ``worker_driver``
    the one that workers saw, ``forward_compatible`` whether any used a newer libcuda than it (``None``: unknown).
    ``environment`` holds the variables that reach workers and tune them, without secrets. ``gpus`` are the GPUs of the
    machine; ``topology[i][j]`` names the way from GPU i to GPU j as ``nvidia-smi topo -m`` does. ``energy_scope`` is
    ``None`` where no energy was measured; ``finished_utc`` is when the last attempt ended;
    ``worker_sha256`` covers the source of the workers, which is what a run measures with. Runs of versions that did
    not record these have ``None`` or nothing there. ``hosts`` are those of a run over several,
    whose clocks were joined to within ``clock_bound_s``, ``None`` where no point was over them.
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
