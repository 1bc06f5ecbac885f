"""Clock and temperature of each GPU under load, as cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.model.results import GpuState, Results
from pybench.model.workloads.registry import LOADS

_HZ_PER_MHZ = 1e6
HEADS = ("point", "GPU", "SM clock", "temperature", "held by")


def gpu_state_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Of points that multiply: every GPU by its index and UUID, and a dash for what was not read."""
    for point in results.points:
        # Without a load all the time a clock says as much about pauses.
        if any(metric in point.metrics for metric in LOADS):
            yield from ((names[point.id], *_cells(gpu)) for gpu in point.gpu_states)


def _cells(gpu: GpuState) -> tuple[str, ...]:
    return (
        gpu.uuid if gpu.index is None else f"GPU {gpu.index} ({gpu.uuid})",
        "-" if gpu.sm_clock_hz is None else f"{gpu.sm_clock_hz / _HZ_PER_MHZ:,.0f} MHz",
        "-" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        "-" if gpu.held_by is None else ", ".join(gpu.held_by) or "nothing",
    )
