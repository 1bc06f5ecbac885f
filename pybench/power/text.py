"""Results of ``pybench power`` as text: the energy table, its JSON and CSV forms, sensor probes and calibrations."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pybench.core.numbers import percent, plain, short_percent
from pybench.model.record import Energy, GpuEnergy, gpu_label
from pybench.power.calibrate import Calibration
from pybench.power.measured_command import SCOPE
from pybench.power.samples import series_times_ns
from pybench.power.sensor_probe import SensorProbe
from pybench.power.trace import PowerTrace
from pybench.report.run.flags import legend
from pybench.report.table import Table
from pybench.report.text.table import Paper, draw, hanging

# Gain error of a board's sensor as a fraction (NVML documents ±5 %). It is the same in every window of a board.
GAIN_FRACTION = 0.05
GAIN = f"the board's gain error, ±{short_percent(GAIN_FRACTION)}, is not included"
ENERGY_HEADS = ("GPU", "energy", "sensor's bound", "mean", "peak", "method", "notes")


def energy_table(energy: Energy, package_j: Mapping[str, float], package_reason: str | None, *, width: int = 80) -> str:
    """One line a GPU; below the table the meaning of each flag, the CPU's joules, and the scope."""
    out = Paper(width)
    rows = [*map(energy_cells, energy.gpus)]
    if len(energy.gpus) > 1:
        totals = {name: getattr(energy, name) for name in ("energy_j", "energy_low_j", "energy_high_j", "mean_power_w")}
        rows.append(energy_cells(GpuEnergy(uuid="all", index=None, method="", **totals)))
    out.print(draw(Table("", ENERGY_HEADS, tuple(rows)).without_empty_columns(), width))
    for flag, words in legend(energy.flags):
        # Relative width of each bound that holds a counter and a power that contradict each other.
        apart = [
            (gpu.energy_high_j - gpu.energy_low_j) / gpu.energy_low_j
            for gpu in energy.gpus
            if flag == "counter_vs_power" and flag in gpu.flags and gpu.energy_low_j and gpu.energy_high_j
        ]
        hanging(out, f"  {flag}: {words}{f'; its ends are {short_percent(max(apart))} apart' if apart else ''}")
    for name, joules in package_j.items():
        hanging(out, f"  {name}: {plain(joules, 6)} J (CPU package, by RAPL)")
    if package_reason is not None:
        hanging(out, f"  CPU packages: unknown: {package_reason}")
    hanging(out, f"  {plain(energy.duration_s)} s; scope: {energy.scope}, without {', '.join(energy.excluded)}; {GAIN}")
    return out.text()


def energy_cells(gpu: GpuEnergy) -> tuple[str, ...]:
    """A row of the table with ``ENERGY_HEADS``."""
    name, flags = gpu.uuid if gpu.index is None else str(gpu.index), ", ".join(gpu.flags)
    if gpu.energy_j is None or gpu.energy_low_j is None or gpu.energy_high_j is None or gpu.mean_power_w is None:
        return name, "unknown", "-", "-", "-", "-", flags
    return (
        name,
        f"{plain(gpu.energy_j, 6)} J",
        f"[{plain(gpu.energy_low_j, 6)}, {plain(gpu.energy_high_j, 6)}] J",
        f"{gpu.mean_power_w:.1f} W",
        "-" if gpu.max_power_w is None else f"{gpu.max_power_w:.1f} W",
        gpu.method,
        flags,
    )


def energy_json(energy: Energy, package_j: Mapping[str, float], package_reason: str | None) -> dict[str, Any]:
    """The window and the joules of every GPU; unknown is null."""
    return {
        "window": {"start_monotonic_ns": energy.start_ns, "end_monotonic_ns": energy.end_ns},
        "excluded": list(energy.excluded),
        "gain_fraction": GAIN_FRACTION,
        **energy.as_dict(),
        "cpu_packages": [{"name": name, "scope": SCOPE, "energy_j": joules} for name, joules in package_j.items()],
        "cpu_packages_reason": package_reason,
    }


def trace_csv(trace: PowerTrace) -> str:
    """Every reading as a row, sorted by time: ns on CLOCK_MONOTONIC, GPU, source, value, unit.

    Stamps of the series are converted from CLOCK_REALTIME with the recorded offsets.
    """
    rows: list[tuple[int, int | None, str, int, str]] = []
    for gpu in trace.gpus:
        counter = zip(gpu.counter.after_ns, gpu.counter.energy_mj, strict=True)
        rows += ((int(t_ns), gpu.index, "counter", int(mj), "mJ") for t_ns, mj in counter)
        series = zip(series_times_ns(gpu.series, trace.offsets), gpu.series.power_mw, strict=True)
        rows += ((int(t_ns), gpu.index, "series", int(mw), "mW") for t_ns, mw in series)
        for source in ("instant", "average", "memory"):
            polled = zip(gpu.polled.t_ns, getattr(gpu.polled, f"{source}_mw"), strict=False)
            rows += [(int(t_ns), gpu.index, source, int(mw), "mW") for t_ns, mw in polled if mw >= 0]
    rows.sort(key=lambda row: row[0])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("monotonic_ns", "gpu", "source", "value", "unit"))
    writer.writerows(rows)
    return out.getvalue()


def calibration_text(calibration: Calibration, path: Path | None) -> str:
    """Lines about one GPU; ``path`` is the file of the stored model, ``None`` when nothing was stored."""
    lines = [f"{gpu_label(calibration.uuid, calibration.index)}: {calibration.board}, driver {calibration.driver}"]
    fit = calibration.fit
    if fit is not None:
        response = fit.response
        lines += [
            f"  a reading every  {_ms(fit.period_s)}",
            f"  it averages      {_ms(response.window_s, fit.window_sigma_s)}",
            f"  low-pass         {_ms(response.tau_s, fit.tau_sigma_s)}",
            f"  lag              {_ms(response.lag_s, fit.lag_sigma_s)}",
            f"  load             {response.low_w:.0f} W and {response.high_w:.0f} W",
            f"  residual         {percent(response.off_fraction)} of the load's swing",
        ]
    if calibration.model is not None:
        lines.append(f"  sees             {short_percent(calibration.model.seen_fraction)} of the time")
    lines.append(f"  not stored: {calibration.reason}" if path is None else f"  stored in        {path}")
    return "\n".join(lines) + "\n"


def probe_text(probes: Sequence[SensorProbe]) -> str:
    """A block of lines for each GPU."""
    lines = []
    for probe in probes:
        spread = probe.series_spacing_s
        spacing = "" if spread is None else f", spaced {_ms(spread[0])} to {_ms(spread[1])}"
        depth = "" if probe.series_depth is None else f", {probe.series_depth} kept"
        lines += [
            f"{gpu_label(probe.uuid, probe.index)}: {probe.name}, scope {probe.scope}",
            f"  works            {', '.join(probe.capabilities) or 'nothing'}",
            f"  energy counter   every {_ms(probe.counter_period_s)}",
            f"  driver's series  every {_ms(probe.series_period_s)}{spacing}{depth}",
            f"  polled power     every {_ms(probe.polled_period_s)}",
        ]
        for cost in probe.calls:
            latency = cost.error
            if cost.median_s is not None and cost.largest_s is not None:
                latency = f"{cost.median_s * 1e6:.1f} µs, at most {cost.largest_s * 1e6:.1f} µs"
            lines.append(f"  {cost.call}: {latency}")
    return "\n".join(lines) + "\n"


def _ms(seconds: float | None, sigma_s: float | None = None) -> str:
    bound = "" if sigma_s is None else f" ± {2 * sigma_s * 1e3:.1f} ms"
    return "unknown" if seconds is None else f"{seconds * 1e3:.1f} ms{bound}"
