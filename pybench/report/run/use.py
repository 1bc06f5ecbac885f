"""Tables of how GPUs were used: their state, energy and memory by phase, and turns."""

from __future__ import annotations

from collections.abc import Mapping

from pybench.core.numbers import interval, percent, plain, quantity
from pybench.model.results import Estimate, PhaseResult, PointResult, Results
from pybench.model.workloads.registry import LOADS
from pybench.report.table import Table
from pybench.report.text.change_words import value_text

_HZ_PER_MHZ = 1e6


def gpu_names(results: Results) -> dict[str, str]:
    """Short name of each GPU by its UUID: its index where a sensor reported it, else the start of its UUID."""
    indices = {gpu.uuid: gpu.index for point in results.points for gpu in point.gpu_states}
    uuids = dict.fromkeys(uuid for point in results.points for uuid in (*point.energy_by_gpu_j, *indices))
    return {uuid: _name(uuid, indices.get(uuid)) for uuid in uuids}


def _name(uuid: str, index: int | None) -> str:
    return "-".join(uuid.split("-")[:2]) if index is None else f"GPU {index}"


def gpu_energy_table(results: Results, names: Mapping[str, str]) -> Table:
    """Joules of one step by GPU."""
    gpus = gpu_names(results)
    rows = tuple(
        (names[point.id], gpus.get(uuid, uuid), f"{plain(joules)} J")
        for point in results.points
        for uuid, joules in point.energy_by_gpu_j.items()
    )
    return Table("Energy of one step, by GPU (boards only)", ("point", "GPU", "energy"), rows)


def gpu_state_table(results: Results, names: Mapping[str, str]) -> Table:
    """Clock and temperature of each GPU at points with a steady load: elsewhere a clock shows pauses as well."""
    rows = tuple(
        (
            names[point.id],
            _name(gpu.uuid, gpu.index),
            "-" if gpu.sm_clock_hz is None else f"{gpu.sm_clock_hz / _HZ_PER_MHZ:,.0f} MHz",
            "-" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
            "-" if gpu.held_by is None else ", ".join(gpu.held_by) or "nothing",
        )
        for point in results.points
        if any(metric in point.metrics for metric in LOADS)
        for gpu in point.gpu_states
    )
    return Table("GPUs under load", ("point", "GPU", "SM clock", "temperature", "held by"), rows)


_USES = {
    "MFU": "mfu_fraction",
    "MBU": "mbu_fraction",
    "GPUs' energy apart by": "energy_imbalance_fraction",
    "NVLink of a GPU": "nvlink_bytes_per_s_per_gpu",
    "stages wait": "stage_idle_fraction",
    "stages apart by": "stage_imbalance_fraction",
    "KV cache": "kv_cache_tokens",
    "at a time": "num_running",
    "preemptions": "num_preemptions",
    "prefix hits": "prefix_hit_fraction",
}
_IDLE = "idle_gpu_fraction"
_TURNS = {
    "turn": "turn_s",
    "switch": "switch_s",
    "share": "switch_fraction",
    "first sleep": "first_sleep_s",
    "idle": _IDLE,
}


def use_table(results: Results, names: Mapping[str, str]) -> Table:
    """A column for each metric of use that any point has, a row for each point that has any of them."""
    columns = {head: name for head, name in _USES.items() if any(name in point.metrics for point in results.points)}
    points = [point for point in results.points if any(name in point.metrics for name in columns.values())]
    return _metrics_table("Use of the machine", columns, points, names)


def turn_table(results: Results, names: Mapping[str, str]) -> Table:
    """One row for each point that took turns; idle GPUs only where some have waited."""
    taken = [point for point in results.points if "turn_s" in point.metrics]
    waited = any(idle.value > 0 for point in taken if (idle := point.metrics.get(_IDLE)) is not None)
    columns = {head: name for head, name in _TURNS.items() if waited or name != _IDLE}
    return _metrics_table("Turns: the switch and its share", columns, taken, names)


def _metrics_table(
    title: str, columns: Mapping[str, str], points: list[PointResult], names: Mapping[str, str]
) -> Table:
    def text(name: str, figure: Estimate | None) -> str:
        if name.endswith("_fraction"):
            return percent(figure.value if figure else None)
        return quantity(figure).strip()

    rows = ((names[point.id], *(text(name, point.metrics.get(name)) for name in columns.values())) for point in points)
    return Table(title, ("point", *columns), tuple(rows))


def phase_energy_table(results: Results, names: Mapping[str, str]) -> Table:
    """One row for each phase whose energy is known."""
    rows = tuple(
        (
            names[point.id],
            phase.name,
            value_text(phase.duration_s, "s"),
            f"{plain(phase.energy_j or 0.0)} J",
            interval(phase.low_j, phase.high_j),
        )
        for point in results.points
        for phase in _with_energy(point)
    )
    heads = ("point", "phase", "time", "energy", "sensor's bound")
    return Table("Energy of one step, by phase (boards only)", heads, rows)


def phase_note_table(results: Results, names: Mapping[str, str]) -> Table:
    """Each flag once for all phases of a point that have it."""
    rows = tuple(
        (names[point.id], flag, ", ".join(phase.name for phase in _with_energy(point) if flag in phase.flags))
        for point in results.points
        for flag in dict.fromkeys(flag for phase in _with_energy(point) for flag in phase.flags)
    )
    return Table("Notes on the energy of phases", ("point", "note", "phases"), rows)


def _with_energy(point: PointResult) -> tuple[PhaseResult, ...]:
    return tuple(phase for phase in point.energy_phases if phase.energy_j is not None)


def phase_table(results: Results, names: Mapping[str, str]) -> Table:
    """One row for each phase whose memory was read; on a CPU the memory of its processes."""
    rows = tuple(
        (
            names[point.id],
            phase.name,
            value_text(phase.duration_s, "s"),
            value_text(phase.device_bytes, "bytes"),
            value_text(phase.host_bytes, "bytes"),
        )
        for point in results.points
        for phase in point.energy_phases
        if phase.device_bytes is not None
    )
    title = "Phases of one step: time, and memory in use at the end"
    return Table(title, ("point", "phase", "time", "fullest GPU", "pinned host"), rows)
