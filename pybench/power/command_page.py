"""The page of one command: its joules, and the power of every GPU over time."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from pybench.core.numbers import plain, short_percent
from pybench.model.gpu_state import gpu_label
from pybench.model.record import EXCLUDED, Energy, GpuEnergy
from pybench.power.page import command_payload
from pybench.power.report.usage import GAIN_FRACTION
from pybench.power.trace import PowerTrace
from pybench.report.page.document import document
from pybench.report.run.flags import legend

_HEADS = ("GPU", "energy", "sensor's bound", "mean power", "highest power", "method", "flags")
_LONGEST = 200
_GAIN = f"A board's own gain, ±{short_percent(GAIN_FRACTION)}, is apart."


def render(
    argv: Sequence[str],
    exit_code: int,
    energy: Energy,
    trace: PowerTrace,
    package_j: Mapping[str, float],
    package_reason: str | None,
) -> str:
    """One HTML file. ``package_j`` is joules of each CPU package, empty for ``package_reason``."""
    command = shlex.join(argv)
    shown = command if len(command) <= _LONGEST else f"{command[:_LONGEST]}…"
    length_s = (energy.end_ns - energy.start_ns) / 1e9
    ended = "" if exit_code == 0 else f"; it ended with exit code {exit_code}"
    return document(
        "command.html.j2",
        power=command_payload(shown, trace, energy.start_ns, energy.end_ns),
        command=shown,
        total="energy unknown" if energy.energy_j is None else f"{plain(energy.energy_j, 6)} J",
        sentence=f"{len(energy.gpus)} GPU{'s' * (len(energy.gpus) != 1)} in {plain(length_s)} s{ended}",
        scope=f"Scope: {energy.scope}, without {', '.join(EXCLUDED)}. {_GAIN}",
        heads=_HEADS,
        rows=[*map(_row, energy.gpus), *_packages(package_j)],
        flag_legend=legend([flag for gpu in energy.gpus for flag in gpu.flags]),
        provenance=_provenance(command, trace, package_reason),
    )


def _row(gpu: GpuEnergy) -> tuple[str, ...]:
    known = gpu.energy_low_j is not None and gpu.energy_high_j is not None
    return (
        gpu_label(gpu.uuid, gpu.index),
        "unknown" if gpu.energy_j is None else f"{plain(gpu.energy_j, 6)} J",
        f"[{plain(gpu.energy_low_j or 0.0, 6)}, {plain(gpu.energy_high_j or 0.0, 6)}] J" if known else "-",
        "-" if gpu.mean_power_w is None else f"{gpu.mean_power_w:.1f} W",
        "-" if gpu.max_power_w is None else f"{gpu.max_power_w:.1f} W",
        gpu.method,
        ", ".join(gpu.flags) or "-",
    )


def _packages(package_j: Mapping[str, float]) -> list[tuple[str, ...]]:
    return [(name, f"{plain(joules, 6)} J", "-", "-", "-", "RAPL", "-") for name, joules in package_j.items()]


def _provenance(command: str, trace: PowerTrace, package_reason: str | None) -> list[tuple[str, str]]:
    gpus = "\n".join(f"{gpu.name} {gpu.uuid}" for gpu in trace.gpus)
    sensors = dict.fromkeys(f"{gpu.sensor.name}: {gpu.sensor.source}" for gpu in trace.gpus if gpu.sensor)
    rows = [("command", command), ("GPUs", gpus), ("driver", trace.driver), ("sensors", "\n".join(sensors))]
    return [(name, text) for name, text in (*rows, ("CPU packages", package_reason or "")) if text]
