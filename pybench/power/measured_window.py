"""Energy and conditions of an attempt's measured steps, from the power trace of one host.

Joules are those of all measured steps together, without the pauses of dither, and of each phase of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median_high

import numpy as np

from pybench.core.formulas.joint_step import joint_spans, phase_cuts_ns
from pybench.core.formulas.serving import steady_window_ns
from pybench.model.health import GpuConditions
from pybench.model.record import Energy, GpuEnergy, PhaseEnergy
from pybench.model.suite import Point
from pybench.model.wire import Step
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import TRAITS_OF
from pybench.power.conditions import conditions_in
from pybench.power.estimate import attempt_energy, gpu_energies
from pybench.power.in_step import SAMPLE_PERIOD_S, LoadPeriods
from pybench.power.trace import MISSING, GpuTrace, PowerTrace

# Percentile of a recording's power that counts as idle: it begins before its load.
IDLE_PERCENTILE = 1


def window_energy(point: Point, ranks: Sequence[Sequence[Step]], trace: PowerTrace) -> Energy:
    """Energy from the first measured step's start to the last one's end, without pauses, and by phase.

    ``ranks`` holds the measured steps of each rank. Raises ``ValueError`` when the window is empty.
    """
    rhythm = _rounds(ranks[0]) or _steps_rhythm(ranks[0])
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


def window_conditions(ranks: Sequence[Sequence[Step]], trace: PowerTrace) -> tuple[GpuConditions, ...]:
    """Conditions of each GPU while steps were measured."""
    return conditions_in(trace, *window_ns(ranks))


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


def _steps_rhythm(steps: Sequence[Step]) -> LoadPeriods:
    """Steps as a load: their length, and the time from one start to the next."""
    starts_ns = [step.start_ns for step in steps]
    apart_s = [(later - earlier) / 1e9 for earlier, later in pairwise(starts_ns)]
    lengths_s = [step.duration_s for step in steps]
    return LoadPeriods(tuple(median_high(lasting_s) for lasting_s in (lengths_s, apart_s) if lasting_s), starts_ns)


def without_pauses(energy: Energy, trace: PowerTrace, pauses_s: float) -> Energy:
    """``energy`` without the joules of ``pauses_s`` seconds of pauses within its window.

    A pause follows finished work, so the GPU is idle but its clocks may still be high: it draws at least the idle power
    and at most the mean power. The idle power is subtracted; the difference widens the bound downwards.
    """
    length_s = (energy.end_ns - energy.start_ns) / 1e9
    pairs = zip(energy.gpus, trace.gpus, strict=True)
    return replace(
        energy, gpus=tuple(_without_pauses(joules, _idle_w(gpu), pauses_s, length_s) for joules, gpu in pairs)
    )


def _without_pauses(gpu: GpuEnergy, idle_w: float, pauses_s: float, length_s: float) -> GpuEnergy:
    flags = (*gpu.flags, "dithered")
    if gpu.energy_j is None or gpu.energy_low_j is None or gpu.energy_high_j is None:
        return replace(gpu, flags=flags)
    mean_w = gpu.energy_j / length_s
    least_j, most_j = min(idle_w, mean_w) * pauses_s, mean_w * pauses_s
    energy_j = gpu.energy_j - least_j
    return replace(
        gpu,
        energy_j=energy_j,
        energy_low_j=max(0.0, gpu.energy_low_j - most_j),
        energy_high_j=gpu.energy_high_j - least_j,
        mean_power_w=energy_j / (length_s - pauses_s),
        flags=flags,
    )


def _idle_w(gpu: GpuTrace) -> float:
    """Power of the idle GPU, 0 if unknown."""
    power_mw = np.asarray(gpu.series.power_mw, dtype=np.int64)
    known = power_mw[power_mw != MISSING]
    return float(np.percentile(known, IDLE_PERCENTILE)) / 1e3 if len(known) else 0.0


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
    return PhaseEnergy(
        name=name,
        duration_s=sum(end - start for start, end in windows_ns) / 1e9,
        energy_j=_total([gpu.energy_j for gpu in gpus]),
        energy_low_j=_total([gpu.energy_low_j for gpu in gpus]),
        energy_high_j=_total([gpu.energy_high_j for gpu in gpus]),
        flags=tuple(sorted(flags)),
        gpus=tuple(gpus),
    )


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
