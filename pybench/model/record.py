"""What the host keeps of one attempt."""

from __future__ import annotations

from dataclasses import dataclass

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

    ``energy_low_j`` and ``energy_high_j`` bound the truth as far as the sensor's own sampling goes; the board's gain
    error (about 5 %, systematic) is apart from it. Unknown is ``None``, and ``flags`` give the reason.
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


EXCLUDED = ("NVSwitch", "PCIe switches", "CPU", "host memory")
"""What the joules of GPU boards leave out."""


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of an attempt's measured steps, first start to last end. ``scope`` is what the joules include.

    ``phases`` are parts of the steps that could be separated.
    """

    start_ns: int
    end_ns: int
    gpus: tuple[GpuEnergy, ...]
    scope: str = "gpu_board"
    phases: tuple[PhaseEnergy, ...] = ()

    @property
    def energy_j(self) -> float | None:
        """Sum over the GPUs, ``None`` when one of them is unknown."""
        values = [gpu.energy_j for gpu in self.gpus]
        return sum(v for v in values if v is not None) if values and None not in values else None


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one rank reported: its measured steps, the number of warm-up steps, and the loss of every step."""

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
    :data:`ALONE`, followed by a colon and the reason after a refused fork.
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
    version: int = RECORD_VERSION

    @property
    def ok(self) -> bool:
        """Whether the attempt was measured to its end."""
        return self.failure is None
