"""The parts of a point's steps: time, joules and memory of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from pybench.core.formulas.joint_step import JointStep, joint_steps
from pybench.core.phases import joint_spans, phase_cuts_ns
from pybench.core.statistics.interval import location
from pybench.model.record import Record
from pybench.model.results import PhaseResult


@dataclass
class _Part:
    """One phase of one attempt: its length in each step, the most bytes at its end."""

    durations_s: list[float] = field(default_factory=list)
    device_bytes: int | None = None
    host_bytes: int | None = None


def phase_results(records: Sequence[Record]) -> tuple[PhaseResult, ...]:
    """Each phase of one step: the location of its steps' times, means of the joules and of the sensor's bounds.

    Phases that the workload reports are there without a sensor, too; prefill and decode are of interest for their
    joules.
    """
    found: dict[str, list[PhaseResult]] = {}
    for record in records:
        for phase in _of_attempt(record):
            found.setdefault(phase.name, []).append(phase)
    return tuple(_mean_phase(name, phases) for name, phases in found.items())


def _of_attempt(record: Record) -> list[PhaseResult]:
    steps = joint_steps(record)
    parts = _reported(steps)
    joules = {phase.name: phase for phase in record.energy.phases} if record.energy else {}
    is_reported = bool(parts)
    if not parts:
        parts = _cut(steps) if joules else {}
    per_step = 1 / len(steps) if steps else 0.0
    results = []
    for name, part in parts.items():
        energy = joules.get(name)
        low, high = (energy.energy_low_j, energy.energy_high_j) if energy else (None, None)
        known = energy is not None and energy.energy_j is not None and low is not None and high is not None
        if not known and not is_reported:
            continue
        results.append(
            PhaseResult(
                name=name,
                duration_s=median(part.durations_s),
                energy_j=energy.energy_j * per_step if known and energy and energy.energy_j is not None else None,
                low_j=low * per_step if known and low is not None else None,
                high_j=high * per_step if known and high is not None else None,
                device_bytes=part.device_bytes,
                host_bytes=part.host_bytes,
                flags=energy.flags if energy else (),
            )
        )
    return results


def _reported(steps: Sequence[JointStep]) -> dict[str, _Part]:
    """Phases that the workload reports; one that a step has several times counts with all its time."""
    parts: dict[str, _Part] = {}
    for step in steps:
        durations_s: dict[str, float] = {}
        for span in joint_spans(step.ranks):
            part = parts.setdefault(span.name, _Part())
            durations_s[span.name] = durations_s.get(span.name, 0.0) + (span.end_ns - span.start_ns) / 1e9
            part.device_bytes = _most((part.device_bytes, span.device_bytes))
            part.host_bytes = _most((part.host_bytes, span.host_bytes))
        for name, duration_s in durations_s.items():
            parts[name].durations_s.append(duration_s)
    return parts


def _cut(steps: Sequence[JointStep]) -> dict[str, _Part]:
    cuts_ns = [phase_cuts_ns(step.ranks) for step in steps]
    return {
        "prefill": _Part([(cut - start) / 1e9 for start, cut, _ in cuts_ns]),
        "decode": _Part([(end - cut) / 1e9 for _, cut, end in cuts_ns]),
    }


def _most(amounts: Iterable[float | None]) -> int | None:
    return max((int(amount) for amount in amounts if amount is not None), default=None)


def _mean_phase(name: str, phases: Sequence[PhaseResult]) -> PhaseResult:
    return PhaseResult(
        name=name,
        duration_s=location([[phase.duration_s] for phase in phases]),
        energy_j=_mean(phase.energy_j for phase in phases),
        low_j=_mean(phase.low_j for phase in phases),
        high_j=_mean(phase.high_j for phase in phases),
        device_bytes=_most(phase.device_bytes for phase in phases),
        host_bytes=_most(phase.host_bytes for phase in phases),
        flags=tuple(sorted({flag for phase in phases for flag in phase.flags})),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
