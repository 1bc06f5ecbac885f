"""How GPUs stood and were used, the energy and memory of phases, and turns, as rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.core.numbers import interval, percent, plain, quantity
from pybench.model.health import GpuState
from pybench.model.results import Estimate, PhaseResult, PointResult, Results
from pybench.model.workloads.registry import LOADS

_HZ_PER_MHZ = 1e6
STATE_HEADS = ("point", "GPU", "SM clock", "temperature", "held by")


def gpu_names(results: Results) -> dict[str, str]:
    """Short name of each GPU by its UUID: its index where a sensor reported it, else the start of its UUID."""
    indices = {gpu.uuid: gpu.index for point in results.points for gpu in point.gpu_states}
    uuids = dict.fromkeys(uuid for point in results.points for uuid in (*point.energy_by_gpu_j, *indices))
    return {uuid: _name(uuid, indices.get(uuid)) for uuid in uuids}


def _name(uuid: str, index: int | None) -> str:
    return "-".join(uuid.split("-")[:2]) if index is None else f"GPU {index}"


def gpu_rows(results: Results) -> tuple[tuple[str, ...], ...]:
    """Short name and UUID of every GPU that a point used."""
    return tuple((name, uuid) for uuid, name in gpu_names(results).items())


def gpu_state_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Rows of points with products: each GPU by index or start of its UUID; a dash for unknown values."""
    for point in results.points:
        # Without a steady load a clock shows pauses as much as limits.
        if any(metric in point.metrics for metric in LOADS):
            yield from ((names[point.id], *_state_cells(gpu)) for gpu in point.gpu_states)


def _state_cells(gpu: GpuState) -> tuple[str, ...]:
    return (
        _name(gpu.uuid, gpu.index),
        "-" if gpu.sm_clock_hz is None else f"{gpu.sm_clock_hz / _HZ_PER_MHZ:,.0f} MHz",
        "-" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        "-" if gpu.held_by is None else ", ".join(gpu.held_by) or "nothing",
    )


_USES = {
    "mfu_fraction": "MFU",
    "mbu_fraction": "MBU",
    "energy_imbalance_fraction": "GPUs' energy apart by",
    "nvlink_bytes_per_s_per_gpu": "NVLink of a GPU",
    "stage_idle_fraction": "stages wait",
    "stage_imbalance_fraction": "stages apart by",
    "kv_cache_tokens": "KV cache",
    "num_running": "at a time",
    "num_preemptions": "preemptions",
    "prefix_hit_fraction": "prefix hits",
}


def use_table(results: Results, names: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Heads and rows: a column for each metric that any point has, a row for each point that has any of them."""
    metrics = [name for name in _USES if any(name in point.metrics for point in results.points)]
    rows = tuple(
        (names[point.id], *(_use_text(name, point.metrics.get(name)) for name in metrics))
        for point in results.points
        if any(name in point.metrics for name in metrics)
    )
    return ("point", *(_USES[name] for name in metrics)), rows


def _use_text(name: str, found: Estimate | None) -> str:
    if name.endswith("_fraction"):
        return percent(found.value if found else None)
    return quantity(found).strip()


ENERGY_HEADS = ("point", "phase", "time", "energy", "sensor's bound")
NOTE_HEADS = ("point", "note", "phases")


def energy_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """One for each phase whose energy is known."""
    for point in results.points:
        for phase in _with_energy(point):
            time = quantity(Estimate(value=phase.duration_s, low=None, high=None, unit="s"))
            bound = interval(phase.low_j, phase.high_j)
            yield names[point.id], phase.name, time, f"{plain(phase.energy_j or 0.0)} J", bound


def note_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Each flag once for all phases of a point that have it."""
    for point in results.points:
        known = _with_energy(point)
        for flag in dict.fromkeys(flag for phase in known for flag in phase.flags):
            yield names[point.id], flag, ", ".join(phase.name for phase in known if flag in phase.flags)


def _with_energy(point: PointResult) -> tuple[PhaseResult, ...]:
    return tuple(phase for phase in point.energy_phases if phase.energy_j is not None)


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
    rows = (
        (names[point.id], *(_turn_cell(name, point.metrics.get(name)) for name in columns.values())) for point in taken
    )
    return ("point", *columns), tuple(rows)


def phase_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """One row for each phase whose memory was read; of a CPU its processes' memory."""
    for point in results.points:
        for phase in point.energy_phases:
            if phase.device_bytes is not None:
                amounts = (_quantity(phase.device_bytes, "bytes"), _quantity(phase.host_bytes, "bytes"))
                yield names[point.id], phase.name, _quantity(phase.duration_s, "s"), *amounts


def _turn_cell(name: str, found: Estimate | None) -> str:
    if name in _FRACTIONS:
        return percent(found.value if found else None)
    return quantity(found).strip()


def _quantity(value: float | None, unit: str) -> str:
    return quantity(None if value is None else Estimate(value=value, low=None, high=None, unit=unit))
