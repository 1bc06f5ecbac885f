"""Rows of the energy of each phase of a step, and of what flags it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.core.numbers import interval, plain, quantity
from pybench.model.results import Estimate, PhaseResult, PointResult, Results

HEADS = ("point", "phase", "time", "energy", "sensor's bound")
NOTE_HEADS = ("point", "note", "phases")


def phase_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """One for each phase whose energy is known."""
    for point in results.points:
        for phase in _known(point):
            time = quantity(Estimate(value=phase.duration_s, low=None, high=None, unit="s"))
            bound = interval(phase.low_j, phase.high_j)
            yield names[point.id], phase.name, time, f"{plain(phase.energy_j or 0.0)} J", bound


def note_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Each flag once for all phases of a point that have it."""
    for point in results.points:
        known = _known(point)
        for flag in dict.fromkeys(flag for phase in known for flag in phase.flags):
            yield names[point.id], flag, ", ".join(phase.name for phase in known if flag in phase.flags)


def _known(point: PointResult) -> tuple[PhaseResult, ...]:
    return tuple(phase for phase in point.energy_phases if phase.energy_j is not None)
