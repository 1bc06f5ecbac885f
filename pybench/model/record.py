"""The record of one attempt, and the health of its GPUs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pybench.model.container import ContainerRun
from pybench.model.machine import HostPart
from pybench.model.text import amount_text
from pybench.model.wire import Failure, Header, Metric, Step


def gpu_label(uuid: str, index: int | None) -> str:
    """``GPU 0``; the UUID where no index is known."""
    return uuid if index is None else f"GPU {index}"


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """A GPU over a point's attempts: median clock, highest temperature, and what held the clock, ``held_by``."""

    uuid: str
    index: int | None
    sm_clock_hz: float | None
    temperature_c: float | None
    held_by: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """How much of one GPU a point used: the most over its attempts, of utilisation the mean.

    ``peak_memory_bytes`` is the peak of the rank's tensors, ``peak_reserved_memory_bytes`` of its allocator, and
    ``device_memory_used_bytes`` the memory of all processes at the end of an attempt. ``utilization_fraction`` is the
    driver's: the share of time in which any kernel ran. ``num_layers`` is how many of the model's layers lie on it,
    where a library chose them (``device_map``). Unknown is ``None``.
    """

    uuid: str
    peak_memory_bytes: float | None = None
    peak_reserved_memory_bytes: float | None = None
    device_memory_used_bytes: float | None = None
    utilization_fraction: float | None = None
    num_layers: int | None = None


@dataclass(frozen=True, kw_only=True)
class GpuCounters:
    """One GPU's ECC errors since the driver was loaded, and remapped rows of its memory; unknown is ``None``.

    ``remap_pending`` is a row that waits for a reset, ``remap_failed`` one that found no spare.
    """

    uuid: str
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None


@dataclass(frozen=True, kw_only=True)
class PcieLink:
    """One GPU's link: the best that was seen, for an idle link saves power by slowing down, and the best it can do."""

    uuid: str
    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None

    @property
    def speed(self) -> tuple[int, int]:
        """Orders links by generation, then width; 0 where unknown."""
        return self.generation or 0, self.width or 0


@dataclass(frozen=True, kw_only=True)
class Xid:
    """An XID of a GPU, or with ``of_switch`` a fatal SXid of an NVSwitch, of line ``sequence`` of the kernel's log."""

    sequence: int
    pci_bus_id: str
    number: int
    of_switch: bool = False

    def __str__(self) -> str:
        return f"SXid {self.number} of an NVSwitch" if self.of_switch else f"XID {self.number}"


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process on a GPU, seen from ``first_ns`` to ``last_ns`` (CLOCK_MONOTONIC), and the most memory that it held."""

    uuid: str
    pid: int
    name: str | None
    memory_bytes: int | None
    first_ns: int
    last_ns: int

    def __str__(self) -> str:
        held = "" if self.memory_bytes is None else f", {amount_text(self.memory_bytes)}"
        return f"{self.pid} ({self.name or 'of unknown name'}{held})"


@dataclass(frozen=True, kw_only=True)
class Health:
    """The GPUs of an attempt before and after it, its links during it, the XIDs that came, and ``others``' processes.

    ``after`` is empty when the driver did not answer in time, ``xids`` is ``None`` where the kernel's log is closed.
    """

    before: tuple[GpuCounters, ...]
    after: tuple[GpuCounters, ...]
    links: tuple[PcieLink, ...]
    xids: tuple[Xid, ...] | None
    others: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GpuConditions:
    """How one GPU stood while an attempt was measured: median clock, highest temperature, NVML's mask of clock events.

    ``utilization_fraction`` is the mean share of time in which any kernel ran, from the window's second second on: a
    reading covers up to a second. ``None``: nothing was read in that time, or the GPU could not be opened.
    """

    uuid: str
    index: int | None
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    clock_event_reasons: int | None = None
    utilization_fraction: float | None = None


JOURNAL_FILE = "journal.jsonl"

# 1: first form. 2: lines of the journal have a place and a checksum.
RECORD_VERSION = 2

FORKED, ALONE = "forked", "alone"


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

    Prefill lasts until every sequence has its first token, then decode; other phases are those of the workload.
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
