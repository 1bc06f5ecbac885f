"""Where the time of a turn goes, and the memory of its phases, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.core.numbers import percent, quantity
from pybench.model.results import Estimate, Results

_IDLE = "idle_gpu_fraction"
_TURN_COLUMNS = {
    "turn": "turn_s",
    "switch": "switch_s",
    "share": "switch_fraction",
    "floor": "switch_floor_s",
    "first sleep": "first_sleep_s",
    "efficiency": "handover_efficiency",
    "idle": _IDLE,
}
"""The phases have a table of their own."""
TURN_TITLE = "Turns: the switch, its share and floor; efficiency of the handover"
PHASE_HEADS = ("point", "phase", "time", "fullest GPU", "pinned host")
_FRACTIONS = ("switch_fraction", "handover_efficiency", _IDLE)


def turn_table(results: Results, names: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Heads, and one row for each point that took turns; idle GPUs only where some have waited."""
    taken = [point for point in results.points if "turn_s" in point.metrics]
    waited = any(found.value > 0 for point in taken if (found := point.metrics.get(_IDLE)) is not None)
    columns = {head: name for head, name in _TURN_COLUMNS.items() if waited or name != _IDLE}
    rows = ((names[point.id], *(_cell(name, point.metrics.get(name)) for name in columns.values())) for point in taken)
    return ("point", *columns), tuple(rows)


def phase_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """One row for each phase whose memory was read; of a CPU its processes' memory."""
    for point in results.points:
        for phase in point.energy_phases:
            if phase.device_bytes is not None:
                amounts = (_quantity(phase.device_bytes, "bytes"), _quantity(phase.host_bytes, "bytes"))
                yield names[point.id], phase.name, _quantity(phase.duration_s, "s"), *amounts


def _cell(name: str, found: Estimate | None) -> str:
    if name in _FRACTIONS:
        return percent(found.value if found else None)
    return quantity(found).strip()


def _quantity(value: float | None, unit: str) -> str:
    return quantity(None if value is None else Estimate(value=value, low=None, high=None, unit=unit))
