"""Where the time of a turn goes, and the memory of its phases, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.model.results import Estimate, Results
from pybench.report.numbers import percent, quantity

_TURN_COLUMNS = {
    "turn": "turn_s",
    "of it switch": "switch_fraction",
    "switch": "switch_s",
    "its floor": "switch_floor_s",
    "first sleep": "first_sleep_s",
    "sleep": "sleep_s",
    "handover": "handover_s",
    "floor over handover": "handover_efficiency",
    "wake": "wake_s",
    "GPUs idle": "idle_gpu_fraction",
}
TURN_HEADS = ("point", *_TURN_COLUMNS)
PHASE_HEADS = ("point", "phase", "time", "fullest GPU", "pinned host")
_FRACTIONS = ("switch_fraction", "handover_efficiency", "idle_gpu_fraction")


def turn_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """One row for each point that took turns."""
    for point in results.points:
        if "turn_s" in point.metrics:
            yield names[point.id], *(_cell(name, point.metrics.get(name)) for name in _TURN_COLUMNS.values())


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
