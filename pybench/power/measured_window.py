"""Energy and conditions of an attempt's measured steps: by the power trace of each host, then over all hosts.

Joules cover all measured steps together, without the pauses of dither, and each phase of a step. Each host has its own
trace and clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_high
from typing import TypeVar

import numpy as np

from pybench.core.generate_metrics import steady_window_ns
from pybench.core.joint_step import joint_spans, moved_step, phase_cuts_ns
from pybench.model.health import GpuConditions
from pybench.model.host import SAME_CLOCK, HostClock
from pybench.model.record import Energy, GpuEnergy, PhaseEnergy
from pybench.model.suite import Point
from pybench.model.wire import Step
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import TRAITS_OF
from pybench.power.estimate import attempt_energy, gpu_energies
from pybench.power.flags import conditions_in
from pybench.power.in_step import SAMPLE_PERIOD_S, LoadPeriods
from pybench.power.trace import MISSING, PowerTrace

# Percentile of a recording's power that counts as idle: it begins before its load.
IDLE_PERCENTILE = 1


def window_energy(point: Point, ranks: Sequence[Sequence[Step]], trace: PowerTrace) -> Energy:
    """Energy from the first measured step's start to the last one's end, without pauses, and by phase.

    ``ranks`` holds the measured steps of each rank. Raises ``ValueError`` when the window is empty.
    """
    rhythm = _rounds(ranks[0])
    if rhythm is None:  # the steps' length, and the time from one start to the next
        starts_ns = [step.start_ns for step in ranks[0]]
        apart_s = [(later - earlier) / 1e9 for earlier, later in pairwise(starts_ns)]
        lengths_s = [step.duration_s for step in ranks[0]]
        rhythm = LoadPeriods(tuple(median_high(times_s) for times_s in (lengths_s, apart_s) if times_s), starts_ns)
    energy = attempt_energy(trace, *window_ns(ranks), rhythm)
    if point.effort.dither_ms > 0:
        pauses_s = sum((later.start_ns - earlier.end_ns) / 1e9 for earlier, later in pairwise(ranks[0]))
        energy = without_pauses(energy, trace, pauses_s)
    together = list(zip(*ranks, strict=True))
    if isinstance(point.settings, Generate) and point.settings.is_batch:
        energy = replace(energy, phases=phase_energies(trace, together, rhythm))
    if isinstance(point.settings, Generate) and point.settings.backend == "server":
        windows = [window for step in together if (window := steady_window_ns(point.settings, step))]
        energy = replace(energy, phases=(_phase(trace, "steady", windows, rhythm),) if windows else ())
    if TRAITS_OF[point.settings.workload].phases:
        energy = replace(energy, phases=span_energies(trace, together))
    return energy


def window_ns(ranks: Sequence[Sequence[Step]]) -> tuple[int, int]:
    """Start of the first measured step and end of the last, over all ranks."""
    steps = [step for rank in ranks for step in rank]
    return min(step.start_ns for step in steps), max(step.end_ns for step in steps)


def _rounds(steps: Sequence[Step]) -> LoadPeriods | None:
    """Decode rounds by the times of their tokens; ``None`` without any.

    An engine without rounds reports each request's first and last token, which give the mean time of a token.
    """
    gaps_s = [(later - earlier) / 1e9 for step in steps for earlier, later in pairwise(step.token_end_ns)]
    if gaps_s:
        return LoadPeriods((median_high(gaps_s),), [end_ns for step in steps for end_ns in step.token_end_ns])
    means_s = [
        (request.last_token_ns - request.first_token_ns) / 1e9 / (request.output_tokens - 1)
        for step in steps
        for request in step.requests
        if request.output_tokens > 1
    ]
    return LoadPeriods((median_high(means_s),)) if means_s else None


def without_pauses(energy: Energy, trace: PowerTrace, pauses_s: float) -> Energy:
    """``energy`` without the joules of ``pauses_s`` seconds of pauses within its window.

    A pause follows finished work, so the GPU is idle but its clocks may still be high: it draws at least the idle power
    and at most the mean power. The idle power is subtracted; the difference widens the bound downwards.
    """
    length_s = (energy.end_ns - energy.start_ns) / 1e9
    gpus = []
    for gpu, recorded in zip(energy.gpus, trace.gpus, strict=True):
        if gpu.energy_j is not None and gpu.energy_low_j is not None and gpu.energy_high_j is not None:
            power_mw = np.asarray(recorded.series.power_mw, dtype=np.int64)
            known_mw = power_mw[power_mw != MISSING]
            idle_w = float(np.percentile(known_mw, IDLE_PERCENTILE)) / 1e3 if len(known_mw) else 0.0
            mean_w = gpu.energy_j / length_s
            least_j = min(idle_w, mean_w) * pauses_s
            gpu = replace(  # noqa: PLW2901 - the same GPU
                gpu,
                energy_j=gpu.energy_j - least_j,
                energy_low_j=max(0.0, gpu.energy_low_j - mean_w * pauses_s),
                energy_high_j=gpu.energy_high_j - least_j,
                mean_power_w=(gpu.energy_j - least_j) / (length_s - pauses_s),
            )
        gpus.append(replace(gpu, flags=(*gpu.flags, "dithered")))
    return replace(energy, gpus=tuple(gpus))


def phase_energies(
    trace: PowerTrace, steps: Sequence[Sequence[Step]], rounds: LoadPeriods | None
) -> tuple[PhaseEnergy, ...]:
    """Prefill and decode of the measured steps; empty if a step has no decode.

    ``steps`` holds each step's ranks, ``rounds`` the decode rounds, with which a sensor may alias.
    """
    cuts = [phase_cuts_ns(ranks) for ranks in steps]
    if not cuts or any(not start < cut < end for start, cut, end in cuts):
        return ()
    prefill = [(start, cut) for start, cut, _ in cuts]
    decode = [(cut, end) for _, cut, end in cuts]
    return _phase(trace, "prefill", prefill, None), _phase(trace, "decode", decode, rounds)


def span_energies(trace: PowerTrace, steps: Sequence[Sequence[Step]]) -> tuple[PhaseEnergy, ...]:
    """Each phase that the measured steps report, over all its windows, by first appearance."""
    windows: dict[str, list[tuple[int, int]]] = {}
    for ranks in steps:
        for span in joint_spans(ranks):
            if span.end_ns > span.start_ns:
                windows.setdefault(span.name, []).append((span.start_ns, span.end_ns))
    return tuple(_phase(trace, name, spans, None) for name, spans in windows.items())


def _phase(
    trace: PowerTrace, name: str, windows_ns: Sequence[tuple[int, int]], rhythm: LoadPeriods | None
) -> PhaseEnergy:
    gpus = gpu_energies(trace, windows_ns, rhythm)
    flags = {flag for gpu in gpus for flag in gpu.flags}
    if any((end - start) / 1e9 < SAMPLE_PERIOD_S for start, end in windows_ns):
        flags.add("short_window")
    energy_j, low_j, high_j = _sums_j(gpus)
    return PhaseEnergy(
        name=name,
        duration_s=sum(end - start for start, end in windows_ns) / 1e9,
        energy_j=energy_j,
        energy_low_j=low_j,
        energy_high_j=high_j,
        flags=tuple(sorted(flags)),
        gpus=tuple(gpus),
    )


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
    gpus: list[GpuEnergy] = []
    for part, host in zip(parts, hosts, strict=True):
        flags = (NO_SAMPLER if host.trace is None else CLOCKS_APART,)
        unknown = (GpuEnergy(uuid=uuid, index=None, method="none", flags=flags) for uuid in host.gpu_uuids)
        gpus += part.gpus if part else unknown
    scope = "module" if any(part.scope == "module" for part in known) else "gpu_board"
    complete = not any(part is None and host.gpu_uuids for part, host in zip(parts, hosts, strict=True))
    # Hosts pass through the phases together.
    together = zip(*(part.phases for part in known), strict=True)
    phases = tuple(_joined_phase(parts_of, complete=complete) for parts_of in together)
    return Energy(start_ns=start_ns, end_ns=end_ns, gpus=tuple(gpus), scope=scope, phases=phases)


def joined_conditions(ranks: Ranks, hosts: Sequence[HostTrace]) -> tuple[GpuConditions, ...]:
    """How each GPU of every traced host stood while steps were measured."""
    return tuple(
        found if host.here else replace(found, index=None)
        for host in hosts
        if host.trace is not None
        for found in conditions_in(host.trace, *window_ns(_there(ranks, host.clock)))
    )


def _of_host(point: Point, ranks: Ranks, host: HostTrace) -> Energy | None:
    if host.trace is None or not host.clock.is_close:
        return None
    found = window_energy(point, _there(ranks, host.clock), host.trace)
    gpus = tuple(gpu if host.here else replace(gpu, index=None) for gpu in found.gpus)
    # Joules that a window may gain or lose at its two ends.
    ends_s = 2 * host.clock.bound_ns / 1e9
    ends_j = {gpu.uuid: ends_s * (gpu.max_power_w or gpu.mean_power_w or 0.0) for gpu in gpus}
    # A phase has a window in every step.
    indices, times = {gpu.uuid: gpu.index for gpu in gpus}, len(ranks[0])
    phases = []
    for phase in found.phases:
        named = (replace(gpu, index=indices[gpu.uuid]) for gpu in phase.gpus)
        of_phase = tuple(_widened(gpu, times * ends_j[gpu.uuid]) for gpu in named)
        phases.append(_widened(replace(phase, gpus=of_phase), times * sum(ends_j.values())))
    gpus = tuple(_widened(gpu, ends_j[gpu.uuid]) for gpu in gpus)
    return replace(found, gpus=gpus, phases=tuple(phases))


def _there(ranks: Ranks, clock: HostClock) -> list[list[Step]]:
    """The steps on the host's own clock."""
    return [[moved_step(step, clock.offset_ns) for step in steps] for steps in ranks]


Joules = TypeVar("Joules", GpuEnergy, PhaseEnergy)


def _widened(joules: Joules, half_j: float) -> Joules:
    if joules.energy_low_j is None or joules.energy_high_j is None:
        return joules
    low_j, high_j = max(0.0, joules.energy_low_j - half_j), joules.energy_high_j + half_j
    return replace(joules, energy_low_j=low_j, energy_high_j=high_j)


def _joined_phase(together: Sequence[PhaseEnergy], *, complete: bool) -> PhaseEnergy:
    known = together if complete and all(phase.energy_j is not None for phase in together) else ()
    energy_j, low_j, high_j = _sums_j(known)
    return replace(
        together[0],
        energy_j=energy_j,
        energy_low_j=low_j,
        energy_high_j=high_j,
        gpus=tuple(gpu for phase in together for gpu in phase.gpus),
        flags=tuple(dict.fromkeys(flag for phase in together for flag in phase.flags)),
    )


def _sums_j(parts: Sequence[GpuEnergy] | Sequence[PhaseEnergy]) -> tuple[float | None, float | None, float | None]:
    """Joules and both ends of their bound, of all parts together; ``None`` without parts, or where one is unknown."""
    low, joules, high = (
        [getattr(part, name) for part in parts] for name in ("energy_low_j", "energy_j", "energy_high_j")
    )
    known = bool(parts) and None not in (*low, *joules, *high)
    return (sum(joules), sum(low), sum(high)) if known else (None, None, None)
