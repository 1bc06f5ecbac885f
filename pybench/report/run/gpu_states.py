"""Clock and temperature of each GPU under load, as cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.model.health import GpuState
from pybench.model.results import Results
from pybench.model.workloads.registry import LOADS

_HZ_PER_MHZ = 1e6
HEADS = ("point", "GPU", "SM clock", "temperature", "held by")


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
    """Of points that multiply: every GPU by its index or the start of its UUID, and a dash for what was not read."""
    for point in results.points:
        # Without a steady load a clock shows pauses as much as limits.
        if any(metric in point.metrics for metric in LOADS):
            yield from ((names[point.id], *_cells(gpu)) for gpu in point.gpu_states)


def _cells(gpu: GpuState) -> tuple[str, ...]:
    return (
        _name(gpu.uuid, gpu.index),
        "-" if gpu.sm_clock_hz is None else f"{gpu.sm_clock_hz / _HZ_PER_MHZ:,.0f} MHz",
        "-" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        "-" if gpu.held_by is None else ", ".join(gpu.held_by) or "nothing",
    )
