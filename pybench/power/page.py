"""The page of one command: its joules, and the power of every GPU over time."""

from __future__ import annotations

import shlex

from pybench.core.numbers import plain
from pybench.power.chart import PowerPayload, trace_chart
from pybench.power.measured_command import CommandPower
from pybench.power.text import ENERGY_HEADS, GAIN, energy_cells
from pybench.report.page.document import document
from pybench.report.run.flags import legend

_LONGEST = 200


def render(used: CommandPower) -> str:
    """One HTML file."""
    energy, trace, command = used.energy, used.trace, shlex.join(used.argv)
    shown = command if len(command) <= _LONGEST else f"{command[:_LONGEST]}…"
    gpus = "\n".join(f"{gpu.name} {gpu.uuid}" for gpu in trace.gpus)
    sensors = dict.fromkeys(f"{gpu.sensor.name}: {gpu.sensor.source}" for gpu in trace.gpus if gpu.sensor)
    provenance = [("command", command), ("GPUs", gpus), ("driver", trace.driver), ("sensors", "\n".join(sensors))]
    provenance.append(("CPU packages", used.package_reason or ""))
    ended = "" if used.exit_code == 0 else f"; it ended with exit code {used.exit_code}"
    return document(
        "command.html.j2",
        power=PowerPayload.of(
            [trace_chart(shown, [(energy.start_ns, energy.start_ns, energy.end_ns)], "command", trace)]
        ),
        command=shown,
        total="energy unknown" if energy.energy_j is None else f"{plain(energy.energy_j, 6)} J",
        sentence=f"{len(energy.gpus)} GPU{'s' * (len(energy.gpus) != 1)} in {plain(energy.duration_s)} s{ended}",
        scope=f"Scope: {energy.scope}, without {', '.join(energy.excluded)}; {GAIN}",
        heads=ENERGY_HEADS,
        rows=[
            *map(energy_cells, energy.gpus),
            *((name, f"{plain(joules, 6)} J", "-", "-", "-", "RAPL", "-") for name, joules in used.package_j.items()),
        ],
        flag_legend=legend(energy.flags),
        provenance=[(name, text) for name, text in provenance if text],
    )
