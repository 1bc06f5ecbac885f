"""Joules of an attempt over several hosts, each with its own trace and clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pybench.core.host_clock import moved_step
from pybench.model.health import GpuConditions
from pybench.model.host import SAME_CLOCK, HostClock
from pybench.model.record import Energy, GpuEnergy, PhaseEnergy
from pybench.model.suite import Point
from pybench.model.wire import Step
from pybench.power.measured_window import window_conditions, window_energy, window_ns
from pybench.power.trace import PowerTrace

NO_SAMPLER, CLOCKS_APART = "no_sampler", "clocks_apart"
"""Flags of a GPU whose host samples no power, or whose host's clock is not known closely enough."""

Ranks = Sequence[Sequence[Step]]


@dataclass(frozen=True)
class HostTrace:
    """One host's GPUs, the trace of their power if there is one, and its clock.

    ``here`` is the run's own host, whose GPUs go by their index; those of other hosts go by their UUID.
    """

    gpu_uuids: tuple[str, ...]
    trace: PowerTrace | None
    clock: HostClock = SAME_CLOCK
    here: bool = True


def joined_energy(point: Point, ranks: Ranks, hosts: Sequence[HostTrace]) -> Energy:
    """Energy of the measured steps, all hosts together; steps are on the clock of the run's own host.

    A window's ends are known on another host to within its clock's bound: that long at the highest power widens each
    bound. GPUs of a host without a trace, or with a clock that is not close, are unknown, and so is every sum.
    Raises ``ValueError`` when the window is empty.
    """
    parts = [_of_host(point, ranks, host) for host in hosts]
    start_ns, end_ns = window_ns(ranks)
    known = [part for part in parts if part is not None]
    gpus = tuple(
        gpu for part, host in zip(parts, hosts, strict=True) for gpu in (part.gpus if part else _unknown(host))
    )
    scope = "module" if any(part.scope == "module" for part in known) else "gpu_board"
    complete = not any(part is None and host.gpu_uuids for part, host in zip(parts, hosts, strict=True))
    phases = _phases(known, complete=complete)
    return Energy(start_ns=start_ns, end_ns=end_ns, gpus=gpus, scope=scope, phases=phases)


def joined_conditions(ranks: Ranks, hosts: Sequence[HostTrace]) -> tuple[GpuConditions, ...]:
    """How each GPU of every traced host stood while steps were measured."""
    return tuple(
        found if host.here else replace(found, index=None)
        for host in hosts
        if host.trace is not None
        for found in window_conditions(_there(ranks, host.clock), host.trace)
    )


def _of_host(point: Point, ranks: Ranks, host: HostTrace) -> Energy | None:
    if host.trace is None or not host.clock.is_close:
        return None
    found = window_energy(point, _there(ranks, host.clock), host.trace)
    gpus = tuple(gpu if host.here else replace(gpu, index=None) for gpu in found.gpus)
    ends_j = {gpu.uuid: _at_ends_j(gpu, host.clock) for gpu in gpus}
    phases = tuple(_widened_phase(phase, gpus, ends_j, len(ranks[0])) for phase in found.phases)
    gpus = tuple(_widened(gpu, ends_j[gpu.uuid]) for gpu in gpus)
    return replace(found, gpus=gpus, phases=phases)


def _there(ranks: Ranks, clock: HostClock) -> list[list[Step]]:
    """The steps on the host's own clock."""
    return [[moved_step(step, clock.offset_ns) for step in steps] for steps in ranks]


def _unknown(host: HostTrace) -> tuple[GpuEnergy, ...]:
    flag = NO_SAMPLER if host.trace is None else CLOCKS_APART
    return tuple(GpuEnergy(uuid=uuid, index=None, method="none", flags=(flag,)) for uuid in host.gpu_uuids)


def _widened(gpu: GpuEnergy, half_j: float) -> GpuEnergy:
    if gpu.energy_low_j is None or gpu.energy_high_j is None:
        return gpu
    return replace(gpu, energy_low_j=max(0.0, gpu.energy_low_j - half_j), energy_high_j=gpu.energy_high_j + half_j)


def _at_ends_j(gpu: GpuEnergy, clock: HostClock) -> float:
    """Joules that a window may gain or lose at its two ends, J."""
    return 2 * clock.bound_ns / 1e9 * (gpu.max_power_w or gpu.mean_power_w or 0.0)


def _widened_phase(
    phase: PhaseEnergy, gpus: Sequence[GpuEnergy], ends_j: Mapping[str, float], num_windows: int
) -> PhaseEnergy:
    """A phase has a window in every step, and its GPUs the indices of ``gpus``."""
    half_j = num_windows * sum(ends_j.values())
    indices = {gpu.uuid: gpu.index for gpu in gpus}
    own = tuple(_widened(replace(gpu, index=indices[gpu.uuid]), num_windows * ends_j[gpu.uuid]) for gpu in phase.gpus)
    if phase.energy_low_j is None or phase.energy_high_j is None:
        return replace(phase, gpus=own)
    return replace(
        phase,
        energy_low_j=max(0.0, phase.energy_low_j - half_j),
        energy_high_j=phase.energy_high_j + half_j,
        gpus=own,
    )


def _phases(parts: Sequence[Energy], *, complete: bool) -> tuple[PhaseEnergy, ...]:
    """Phases over all hosts, which pass through them together; joules are unknown where a host's are."""
    if not parts:
        return ()
    return tuple(_phase(together, complete=complete) for together in zip(*(part.phases for part in parts), strict=True))


def _phase(together: Sequence[PhaseEnergy], *, complete: bool) -> PhaseEnergy:
    first = together[0]
    if not complete or any(phase.energy_j is None for phase in together):
        return replace(
            first, energy_j=None, energy_low_j=None, energy_high_j=None, gpus=_gpus(together), flags=_flags(together)
        )
    return replace(
        first,
        energy_j=_sum(phase.energy_j for phase in together),
        energy_low_j=_sum(phase.energy_low_j for phase in together),
        energy_high_j=_sum(phase.energy_high_j for phase in together),
        gpus=_gpus(together),
        flags=_flags(together),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _gpus(together: Sequence[PhaseEnergy]) -> tuple[GpuEnergy, ...]:
    return tuple(gpu for phase in together for gpu in phase.gpus)


def _flags(together: Sequence[PhaseEnergy]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(flag for phase in together for flag in phase.flags))
