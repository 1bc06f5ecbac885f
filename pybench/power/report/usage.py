"""What a command or a window used, for people and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from pybench.core.numbers import plain, short_percent
from pybench.model.record import EXCLUDED, Energy, GpuEnergy
from pybench.power.energy.times import series_times_ns
from pybench.power.rapl import SCOPE
from pybench.power.trace import GpuTrace, PowerTrace
from pybench.report.run.flags import legend
from pybench.report.run.rows import Table
from pybench.report.text.table import console, draw, hanging, without_trailing_spaces

# Systematic and the same in every window of a board: it cancels in ratios on one board.
GAIN_FRACTION = 0.05
_HEADS = ("GPU", "energy", "bound", "mean", "peak", "method", "notes")


def render(energy: Energy, package_j: Mapping[str, float], package_reason: str | None, *, width: int = 80) -> str:
    """A table of one line a GPU, as ``perf stat`` would; what flags mean, the CPU's joules and the scope below it."""
    stream = io.StringIO()
    out = console(stream, width, color=False)
    rows = [*map(_cells, energy.gpus)]
    if len(energy.gpus) > 1:
        total = "unknown" if energy.energy_j is None else f"{plain(energy.energy_j, 6)} J"
        rows.append(("all", total, *[""] * (len(_HEADS) - 2)))
    out.print(draw(Table("", _HEADS, tuple(rows)).without_empty_columns(), width))
    for flag, words in legend([flag for gpu in energy.gpus for flag in gpu.flags]):
        hanging(out, f"  {flag}: {words}")
    for name, joules in package_j.items():
        hanging(out, f"  {name}: {plain(joules, 6)} J (CPU package, by RAPL)")
    if package_reason is not None:
        hanging(out, f"  CPU packages: unknown: {package_reason}")
    length_s = (energy.end_ns - energy.start_ns) / 1e9
    gain = f"a board's own gain, ±{short_percent(GAIN_FRACTION)}, is apart"
    hanging(out, f"  {plain(length_s)} s; scope: {energy.scope}, without {', '.join(EXCLUDED)}; {gain}")
    return without_trailing_spaces(stream.getvalue())


def _cells(gpu: GpuEnergy) -> tuple[str, ...]:
    flags = ", ".join(gpu.flags)
    if gpu.energy_j is None or gpu.energy_low_j is None or gpu.energy_high_j is None or gpu.mean_power_w is None:
        return _name(gpu), "unknown", "-", "-", "-", "-", flags
    return (
        _name(gpu),
        f"{plain(gpu.energy_j, 6)} J",
        f"[{plain(gpu.energy_low_j, 6)}, {plain(gpu.energy_high_j, 6)}]",
        f"{gpu.mean_power_w:.1f} W",
        "-" if gpu.max_power_w is None else f"{gpu.max_power_w:.1f} W",
        gpu.method,
        flags,
    )


def _name(gpu: GpuEnergy) -> str:
    return gpu.uuid if gpu.index is None else str(gpu.index)


def as_json(energy: Energy, package_j: Mapping[str, float], package_reason: str | None) -> dict[str, Any]:
    """The window and every GPU's joules; unknown is null."""
    names = (
        *("uuid", "index", "energy_j", "energy_low_j", "energy_high_j", "mean_power_w", "max_power_w", "method"),
        "num_publications",
    )
    return {
        "window": {"start_monotonic_ns": energy.start_ns, "end_monotonic_ns": energy.end_ns},
        "scope": energy.scope,
        "excluded": list(EXCLUDED),
        "gain_fraction": GAIN_FRACTION,
        "energy_j": energy.energy_j,
        "gpus": [{**{name: getattr(gpu, name) for name in names}, "flags": list(gpu.flags)} for gpu in energy.gpus],
        "cpu_packages": [{"name": name, "scope": SCOPE, "energy_j": joules} for name, joules in package_j.items()],
        "cpu_packages_reason": package_reason,
    }


def trace_csv(trace: PowerTrace) -> str:
    """Every reading as a row, in order of time: ns on CLOCK_MONOTONIC, GPU, source, value, unit.

    The series' stamps are moved there by the offsets measured between the clocks.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("monotonic_ns", "gpu", "source", "value", "unit"))
    rows = [row for gpu in trace.gpus for row in _rows(gpu, trace)]
    rows.sort(key=lambda row: row[0])
    writer.writerows(rows)
    return out.getvalue()


def _rows(gpu: GpuTrace, trace: PowerTrace) -> Iterator[tuple[int, int | None, str, int, str]]:
    for t_ns, mj in zip(gpu.counter.after_ns, gpu.counter.energy_mj, strict=True):
        yield int(t_ns), gpu.index, "counter", int(mj), "mJ"
    for t_ns, mw in zip(series_times_ns(gpu.series, trace.offsets), gpu.series.power_mw, strict=True):
        yield int(t_ns), gpu.index, "series", int(mw), "mW"
    for source in ("instant", "average", "memory"):
        for t_ns, mw in zip(gpu.polled.t_ns, getattr(gpu.polled, f"{source}_mw"), strict=False):
            if mw >= 0:
                yield int(t_ns), gpu.index, source, int(mw), "mW"
