"""Energy of a step's parts, from the power trace of a whole attempt.

The engine's step times show when each sequence had its first token, and workloads with phases report each; the windows
between them are cut from the trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from pybench.core.phases import joint_spans, phase_cuts_ns
from pybench.model.record import PhaseEnergy
from pybench.model.wire import Step
from pybench.power.energy.aliasing import SAMPLE_PERIOD_S, LoadPeriods
from pybench.power.energy.attempt import gpu_energies
from pybench.power.trace import PowerTrace

Window = tuple[int, int]
"""Start and end, CLOCK_MONOTONIC nanoseconds."""


def phase_energies(
    trace: PowerTrace, steps: Sequence[Sequence[Step]], rounds: LoadPeriods | None
) -> tuple[PhaseEnergy, ...]:
    """Prefill and decode of the measured steps, each given as its ranks' accounts; empty where a step has no decode.

    ``rounds`` are those of decode, which a sensor may alias with. A window shorter than the sensor's
    sampling period is flagged ``short_window``: what the sensor saw of it is mostly its neighbours.
    """
    cuts = [phase_cuts_ns(ranks) for ranks in steps]
    if not cuts or any(not start < cut < end for start, cut, end in cuts):
        return ()
    prefill = [(start, cut) for start, cut, _ in cuts]
    decode = [(cut, end) for _, cut, end in cuts]
    return _phase(trace, "prefill", prefill, None), _phase(trace, "decode", decode, rounds)


def span_energies(trace: PowerTrace, steps: Sequence[Sequence[Step]]) -> tuple[PhaseEnergy, ...]:
    """Each phase that the measured steps report, over all its windows, in the order of first appearance."""
    windows: dict[str, list[Window]] = {}
    for ranks in steps:
        for span in joint_spans(ranks):
            if span.end_ns > span.start_ns:
                windows.setdefault(span.name, []).append((span.start_ns, span.end_ns))
    return tuple(_phase(trace, name, own, None) for name, own in windows.items())


def _phase(trace: PowerTrace, name: str, windows: Sequence[Window], rhythm: LoadPeriods | None) -> PhaseEnergy:
    gpus = gpu_energies(trace, windows, rhythm)
    flags = {flag for gpu in gpus for flag in gpu.flags}
    if any((end - start) / 1e9 < SAMPLE_PERIOD_S for start, end in windows):
        flags.add("short_window")
    return PhaseEnergy(
        name=name,
        duration_s=sum(end - start for start, end in windows) / 1e9,
        energy_j=_total([gpu.energy_j for gpu in gpus]),
        energy_low_j=_total([gpu.energy_low_j for gpu in gpus]),
        energy_high_j=_total([gpu.energy_high_j for gpu in gpus]),
        flags=tuple(sorted(flags)),
        gpus=tuple(gpus),
    )


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
