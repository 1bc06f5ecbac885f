"""Energy and conditions of an attempt's measured steps: by the power trace of each host, then over all hosts.

Joules cover all measured steps together, without the pauses of dither, and each phase of a step. Each host has its own
trace and clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import or_
from statistics import fmean, median, median_high
from typing import Any, TypeVar

import numpy as np

from pybench.core.generate_metrics import steady_window_ns
from pybench.core.joint_step import joint_spans, phase_cuts_ns
from pybench.model.machine import SAME_CLOCK, HostClock
from pybench.model.record import Energy, GpuConditions, GpuEnergy, PhaseEnergy
from pybench.model.suite import Point
from pybench.model.wire import Step
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import TRAITS_OF
from pybench.model.workloads.settings import Settings
from pybench.power.estimate import around, attempt_energy, gpu_energies
from pybench.power.in_step import SAMPLE_PERIOD_S, LoadPeriods
from pybench.power.trace import MISSING, PowerTrace

# Percentile of a recording's power that counts as idle: it begins before its load.
IDLE_PERCENTILE = 1

Ranks = Sequence[Sequence[Step]]
"""The measured steps of each rank."""


def window_energy(point: Point, ranks: Ranks, trace: PowerTrace, ahead_ns: int = 0) -> Energy:
    """Energy from the first measured step's start to the last one's end, without pauses, and by phase.

    ``ranks`` holds the measured steps of each rank; the trace's clock is ``ahead_ns`` ahead of theirs. Raises
    ``ValueError`` when the window is empty.
    """
    start_ns, end_ns = window_ns(ranks)
    rhythm = _rhythm(ranks[0], ahead_ns)
    phases = _phase_windows(point.settings, list(zip(*ranks, strict=True)))
    energy = attempt_energy(trace, start_ns + ahead_ns, end_ns + ahead_ns, rhythm)
    if point.effort.dither_ms > 0:
        pauses_s = sum((later.start_ns - earlier.end_ns) / 1e9 for earlier, later in pairwise(ranks[0]))
        energy = without_pauses(energy, trace, pauses_s)
    joules = []
    for name, windows_ns in phases.items():
        moved_ns = [(first_ns + ahead_ns, last_ns + ahead_ns) for first_ns, last_ns in windows_ns]
        joules.append(_phase(trace, name, moved_ns, rhythm if name in _RHYTHMIC else None))
    return replace(energy, phases=tuple(joules))


def window_ns(ranks: Ranks) -> tuple[int, int]:
    """Start of the first measured step and end of the last, over all ranks."""
    steps = [step for rank in ranks for step in rank]
    return min(step.start_ns for step in steps), max(step.end_ns for step in steps)


def _rhythm(steps: Sequence[Step], ahead_ns: int) -> LoadPeriods:
    """What repeats: decode rounds by the times of their tokens; without any the steps.

    An engine without rounds reports each request's first and last token, both the end of a round; they give the mean
    time of a token. A step has its length, and the time to the next one's start.
    """
    gaps_s = [(later - earlier) / 1e9 for step in steps for earlier, later in pairwise(step.token_end_ns)]
    if gaps_s:
        ends_ns = [end_ns + ahead_ns for step in steps for end_ns in step.token_end_ns]
        return LoadPeriods((median_high(gaps_s),), ends_ns)
    requests = [request for step in steps for request in step.requests if request.output_tokens > 1]
    if requests:
        spans = [(request.last_token_ns - request.first_token_ns, request.output_tokens - 1) for request in requests]
        rounds_ns = {end_ns for request in requests for end_ns in (request.first_token_ns, request.last_token_ns)}
        return LoadPeriods(
            (median_high(span_ns / 1e9 / num for span_ns, num in spans),),
            [end_ns + ahead_ns for end_ns in sorted(rounds_ns)],
        )
    starts_ns = [step.start_ns + ahead_ns for step in steps]
    apart_s = [(later - earlier) / 1e9 for earlier, later in pairwise(starts_ns)]
    lengths_s = [step.duration_s for step in steps]
    return LoadPeriods(tuple(median_high(times_s) for times_s in (lengths_s, apart_s) if times_s), starts_ns)


# Phases with the load's rhythm, with which a sensor may alias.
_RHYTHMIC = frozenset(("decode", "steady"))


def _phase_windows(settings: Settings, steps: Sequence[Sequence[Step]]) -> dict[str, list[tuple[int, int]]]:
    """Windows of each phase over all ``steps``, which hold their ranks; in order of appearance, none if unknown.

    A batch has prefill and decode unless some step has no decode; a server has its steady time; other workloads report
    their phases.
    """
    windows: dict[str, list[tuple[int, int]]] = {}
    if isinstance(settings, Generate) and settings.backend == "server":
        steady = [window for ranks in steps if (window := steady_window_ns(settings, ranks))]
        return {"steady": steady} if steady else {}
    if isinstance(settings, Generate) and settings.is_batch:
        cuts_ns = [phase_cuts_ns(ranks) for ranks in steps]
        if all(start_ns < cut_ns < end_ns for start_ns, cut_ns, end_ns in cuts_ns):
            windows["prefill"] = [(start_ns, cut_ns) for start_ns, cut_ns, _ in cuts_ns]
            windows["decode"] = [(cut_ns, end_ns) for _, cut_ns, end_ns in cuts_ns]
    elif TRAITS_OF[settings.workload].phases:
        for span in (span for ranks in steps for span in joint_spans(ranks)):
            if span.end_ns > span.start_ns:
                windows.setdefault(span.name, []).append((span.start_ns, span.end_ns))
    return windows


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


def _phase(
    trace: PowerTrace, name: str, windows_ns: Sequence[tuple[int, int]], rhythm: LoadPeriods | None
) -> PhaseEnergy:
    gpus = gpu_energies(trace, windows_ns, rhythm)
    flags = {flag for gpu in gpus for flag in gpu.flags}
    if any((end - start) / 1e9 < SAMPLE_PERIOD_S for start, end in windows_ns):
        flags.add("short_window")
    duration_s = sum(end - start for start, end in windows_ns) / 1e9
    return PhaseEnergy(name=name, duration_s=duration_s, flags=tuple(sorted(flags)), gpus=gpus, **_sums_j(gpus))


NO_SAMPLER, CLOCKS_APART = "no_sampler", "clocks_apart"
"""Flags of a GPU whose host samples no power, or whose host's clock is not known closely enough."""


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
    start_ns, end_ns = window_ns(ranks)
    parts = [_of_host(point, ranks, host) for host in hosts]
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


def _of_host(point: Point, ranks: Ranks, host: HostTrace) -> Energy | None:
    if host.trace is None or not host.clock.is_close:
        return None
    found = window_energy(point, ranks, host.trace, host.clock.offset_ns)
    # Joules that a window may gain or lose at its two ends. A phase has a window in every step.
    ends_s, num_steps = 2 * host.clock.bound_ns / 1e9, len(ranks[0])
    ends_j = {gpu.uuid: ends_s * (gpu.max_power_w or gpu.mean_power_w or 0.0) for gpu in found.gpus}

    def widened(gpus: Sequence[GpuEnergy], num_windows: int) -> tuple[GpuEnergy, ...]:
        named = (gpu if host.here else replace(gpu, index=None) for gpu in gpus)
        return tuple(_widened(gpu, num_windows * ends_j[gpu.uuid]) for gpu in named)

    phases = (replace(phase, gpus=widened(phase.gpus, num_steps)) for phase in found.phases)
    wider = tuple(_widened(phase, num_steps * sum(ends_j.values())) for phase in phases)
    return replace(found, gpus=widened(found.gpus, 1), phases=wider)


Joules = TypeVar("Joules", GpuEnergy, PhaseEnergy)


def _widened(joules: Joules, half_j: float) -> Joules:
    if joules.energy_low_j is None or joules.energy_high_j is None:
        return joules
    low_j, high_j = max(0.0, joules.energy_low_j - half_j), joules.energy_high_j + half_j
    return replace(joules, energy_low_j=low_j, energy_high_j=high_j)


def _joined_phase(together: Sequence[PhaseEnergy], *, complete: bool) -> PhaseEnergy:
    known = together if complete and all(phase.energy_j is not None for phase in together) else ()
    return replace(
        together[0],
        gpus=tuple(gpu for phase in together for gpu in phase.gpus),
        flags=tuple(dict.fromkeys(flag for phase in together for flag in phase.flags)),
        **_sums_j(known),
    )


def _sums_j(parts: Sequence[GpuEnergy] | Sequence[PhaseEnergy]) -> dict[str, Any]:
    """Joules and both ends of their bound, of all parts together; ``None`` without parts, or where one is unknown."""
    names = ("energy_j", "energy_low_j", "energy_high_j")
    values_j = {name: [getattr(part, name) for part in parts] for name in names}
    known = bool(parts) and not any(None in of_name for of_name in values_j.values())
    return {name: sum(of_name) if known else None for name, of_name in values_j.items()}


def joined_conditions(ranks: Ranks, hosts: Sequence[HostTrace]) -> tuple[GpuConditions, ...]:
    """Conditions of each GPU of every traced host while steps were measured."""
    start_ns, end_ns = window_ns(ranks)
    return tuple(
        found if host.here else replace(found, index=None)
        for host in hosts
        if host.trace is not None
        for found in conditions_in(host.trace, start_ns + host.clock.offset_ns, end_ns + host.clock.offset_ns)
    )


_HZ_PER_MHZ = 1e6
# A utilisation reading covers up to a second before it (NVML's documentation: a sixth to one second, by product).
_UTILIZATION_NS = 1_000_000_000


def conditions_in(trace: PowerTrace, start_ns: int, end_ns: int) -> tuple[GpuConditions, ...]:
    """Conditions of every GPU between two CLOCK_MONOTONIC times.

    Readings next to the window count, too, except utilisation: only readings that cover nothing else count.
    """
    conditions = []
    for gpu, slow in ((gpu, gpu.slow) for gpu in trace.gpus):
        columns = (slow.sm_clock_mhz, slow.temperature_c, slow.clock_event_reasons)
        clocks_mhz, temperatures_c, reasons = (around(each, slow.t_ns, start_ns, end_ns).tolist() for each in columns)
        covered_ns = start_ns + _UTILIZATION_NS
        busy_percent = around(slow.gpu_utilization_percent, slow.t_ns, covered_ns, end_ns, nearest_ns=0).tolist()
        of_gpu = GpuConditions(
            uuid=gpu.uuid,
            index=gpu.index,
            sm_clock_hz=median(clocks_mhz) * _HZ_PER_MHZ if clocks_mhz else None,
            temperature_c=float(max(temperatures_c)) if temperatures_c else None,
            clock_event_reasons=reduce(or_, reasons) if reasons else None,
            utilization_fraction=fmean(busy_percent) / 100 if busy_percent else None,
        )
        conditions.append(of_gpu)
    return tuple(conditions)
