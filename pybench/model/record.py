"""The record of one attempt."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pybench.model.container import ContainerRun
from pybench.model.health import GpuConditions, Health
from pybench.model.host import HostPart
from pybench.model.wire import Failure, Header, Metric, Step

JOURNAL_FILE = "journal.jsonl"

# 1: first form. 2: lines of the journal have a place and a checksum.
RECORD_VERSION = 2

FORKED, ALONE = "forked", "alone"
"""How a worker was started."""


@dataclass(frozen=True, kw_only=True)
class GpuEnergy:
    """Energy one GPU used in a window.

    ``energy_low_j`` and ``energy_high_j`` bound the error of the sensor's sampling; they leave out the board's gain
    error (about 5 %, systematic). Unknown is ``None``, and ``flags`` give the reason.
    """

    uuid: str
    index: int | None
    energy_j: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None
    mean_power_w: float | None = None
    max_power_w: float | None = None
    method: str
    num_publications: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PhaseEnergy:
    """Energy of one phase, summed over all GPUs and measured steps; the bounds of the windows add up.

    Prefill lasts from a step's start until every sequence has its first token, decode from there to the step's end;
    other phases are those of the workload. ``gpus`` are the figures of each GPU.
    """

    name: str
    duration_s: float
    energy_j: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None
    flags: tuple[str, ...] = ()
    gpus: tuple[GpuEnergy, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of an attempt's measured steps, first start to last end. ``scope`` is what the joules include."""

    start_ns: int
    end_ns: int
    gpus: tuple[GpuEnergy, ...]
    scope: str = "gpu_board"
    phases: tuple[PhaseEnergy, ...] = ()

    @property
    def excluded(self) -> tuple[str, ...]:
        """Power outside the joules; the sensor of a module includes its CPU and memory."""
        return "NVSwitch", "PCIe switches", *(() if self.scope == "module" else ("CPU", "host memory"))

    @property
    def energy_j(self) -> float | None:
        """Sum over the GPUs in J, ``None`` when one of them is unknown."""
        return self._sum("energy_j")

    @property
    def energy_low_j(self) -> float | None:
        """Lower end of the bound in J: the GPUs' lower ends add up."""
        return self._sum("energy_low_j")

    @property
    def energy_high_j(self) -> float | None:
        """Upper end of the bound in J: the GPUs' upper ends add up."""
        return self._sum("energy_high_j")

    @property
    def mean_power_w(self) -> float | None:
        """Mean power of all GPUs together in W."""
        return self._sum("mean_power_w")

    @property
    def duration_s(self) -> float:
        """Length of the window in s."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of all GPUs, each once."""
        return tuple(dict.fromkeys(flag for gpu in self.gpus for flag in gpu.flags))

    def as_dict(self) -> dict[str, Any]:
        """Totals, and the figures of each GPU, ready for JSON."""
        names = ("energy_j", "energy_low_j", "energy_high_j", "mean_power_w", "duration_s", "scope")
        gpus = [{**asdict(gpu), "flags": list(gpu.flags)} for gpu in self.gpus]
        return {**{name: getattr(self, name) for name in names}, "flags": list(self.flags), "gpus": gpus}

    def __str__(self) -> str:
        """For example ``2,315.0 J ±0.8 % in 5.00 s, 463.0 W``; ± is half the bound."""
        if not self.energy_j or self.energy_low_j is None or self.energy_high_j is None:
            return f"unknown energy in {self.duration_s:.2f} s"
        percent = 50 * (self.energy_high_j - self.energy_low_j) / self.energy_j
        power = "" if self.mean_power_w is None else f", {self.mean_power_w:,.1f} W"
        flags = f" ({', '.join(self.flags)})" if self.flags else ""
        return f"{self.energy_j:,.1f} J ±{percent:.1f} % in {self.duration_s:.2f} s{power}{flags}"

    def _sum(self, name: str) -> float | None:
        values = [getattr(gpu, name) for gpu in self.gpus]
        return sum(values) if values and None not in values else None


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """One rank's report: its measured steps, the number of warm-up steps, and the loss of every step."""

    header: Header
    steps: tuple[Step, ...] = ()
    metrics: tuple[Metric, ...] = ()
    warmup_steps: int = 0
    steady: bool | None = None
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Record:
    """One attempt at one point: measured, or failed with its cause.

    ``warm_after`` names the points that the same worker process had measured before, in that order; none where the
    process was fresh. ``startup_s`` runs from the launch to the first warm-up step, and is ``None`` in a warm process.
    ``energy`` is ``None`` for the reason in ``energy_reason``, ``container`` where the worker ran in none, ``health``
    where no GPU took part or no driver answered. Paths are relative to the run's folder; ``log`` is the process's, and
    so the same for all that it measured. ``hosts`` has the parts of an attempt over several hosts; times of ranks
    are on the clock of the leading host. ``start`` is :data:`FORKED` for a process with its libraries imported, else
    :data:`ALONE`, followed by a colon and the reason after a refused fork. ``start_ns`` is on CLOCK_MONOTONIC, and
    ``realtime_offset_ns`` is CLOCK_REALTIME less it at that moment; ``None`` in records of before.
    """

    point_id: str
    point_digest: str
    attempt: int
    started_utc: str
    duration_s: float
    startup_s: float | None
    ranks: tuple[RankReport, ...]
    failure: Failure | None
    energy: Energy | None
    energy_reason: str | None
    log: str
    trace: str | None
    argv: tuple[str, ...]
    container: ContainerRun | None = None
    conditions: tuple[GpuConditions, ...] = ()
    health: Health | None = None
    warm_after: tuple[str, ...] = ()
    hosts: tuple[HostPart, ...] = ()
    start: str = ALONE
    start_ns: int | None = None
    realtime_offset_ns: int | None = None
    version: int = RECORD_VERSION

    @property
    def ok(self) -> bool:
        """Whether the attempt was measured to its end."""
        return self.failure is None
