"""What a power trace shows of the time in which steps were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median_high

from pybench.model.health import GpuConditions
from pybench.model.record import Energy
from pybench.model.suite import Point
from pybench.model.wire import Step
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import TRAITS_OF
from pybench.power.conditions import conditions_in
from pybench.power.energy import LoadPeriods, attempt_energy, phase_energies, span_energies, without_pauses
from pybench.power.trace import PowerTrace


def window_energy(point: Point, ranks: Sequence[Sequence[Step]], trace: PowerTrace) -> Energy:
    """Energy from the first measured step's start to the last one's end, over all ranks, less that of pauses.

    ``ranks`` holds the measured steps of each rank. Raises ``ValueError`` when the window is empty.
    """
    rhythm = _rounds(ranks[0]) or _steps_rhythm(ranks[0])
    energy = attempt_energy(trace, *window_ns(ranks), rhythm)
    if point.effort.dither_ms > 0:
        energy = without_pauses(energy, trace, _pauses_s(ranks[0]))
    if isinstance(point.settings, Generate) and point.settings.is_batch:
        together = list(zip(*ranks, strict=True))
        energy = replace(energy, phases=phase_energies(trace, together, rhythm))
    if TRAITS_OF[point.settings.workload].phases:
        together = list(zip(*ranks, strict=True))
        energy = replace(energy, phases=span_energies(trace, together))
    return energy


def window_conditions(ranks: Sequence[Sequence[Step]], trace: PowerTrace) -> tuple[GpuConditions, ...]:
    """How each GPU stood while steps were measured."""
    return conditions_in(trace, *window_ns(ranks))


def window_ns(ranks: Sequence[Sequence[Step]]) -> tuple[int, int]:
    """Start of the first measured step and end of the last, over all ranks."""
    steps = [step for rank in ranks for step in rank]
    return min(step.start_ns for step in steps), max(step.end_ns for step in steps)


def _rounds(steps: Sequence[Step]) -> LoadPeriods | None:
    """Decode rounds, by the times of their tokens; ``None`` where there are none.

    An engine that reports no rounds reports each request's first and last token, and so its mean time of one.
    """
    gaps_s = [(later - earlier) / 1e9 for step in steps for earlier, later in pairwise(step.token_end_ns)]
    if gaps_s:
        return LoadPeriods((median_high(gaps_s),), [end_ns for step in steps for end_ns in step.token_end_ns])
    means_s = [gap_s for step in steps for gap_s in _mean_gaps_s(step)]
    return LoadPeriods((median_high(means_s),)) if means_s else None


def _steps_rhythm(steps: Sequence[Step]) -> LoadPeriods:
    """Steps as a load: their own length, and with what lies between."""
    starts_ns = [step.start_ns for step in steps]
    apart_s = [(later - earlier) / 1e9 for earlier, later in pairwise(starts_ns)]
    lengths_s = [step.duration_s for step in steps]
    return LoadPeriods(tuple(median_high(lasting_s) for lasting_s in (lengths_s, apart_s) if lasting_s), starts_ns)


def _mean_gaps_s(step: Step) -> list[float]:
    return [
        (request.last_token_ns - request.first_token_ns) / 1e9 / (request.output_tokens - 1)
        for request in step.requests
        if request.output_tokens > 1
    ]


def _pauses_s(steps: Sequence[Step]) -> float:
    """Time between steps, in which nothing was measured."""
    return sum((later.start_ns - earlier.end_ns) / 1e9 for earlier, later in pairwise(steps))
