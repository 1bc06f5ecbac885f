"""The page and the picture of one command: its joules, and the power of every GPU over time."""

from __future__ import annotations

import shlex
from xml.sax.saxutils import escape

import numpy as np

from pybench.core.numbers import plain
from pybench.model.record import Energy, gpu_label
from pybench.power.chart import PowerPayload, power_samples, trace_chart
from pybench.power.measured_command import CommandPower
from pybench.power.samples import Column
from pybench.power.text import ENERGY_HEADS, GAIN, energy_cells
from pybench.power.trace import PowerTrace
from pybench.report.page.document import document
from pybench.report.run.flags import legend

_LONGEST = 200

WIDTH, HEIGHT = 960, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 30, 40
LABEL_WIDTH, LABEL_HEIGHT = 70, 15
LABELS_A_ROW = (WIDTH - LEFT - RIGHT) // LABEL_WIDTH
# Colours that colour-blind people can distinguish (Okabe and Ito).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
# Points in one line of the picture; more points than four a column add nothing visible.
MOST_POINTS = 4 * WIDTH


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


def svg(trace: PowerTrace, energy: Energy) -> str:
    """The driver's series of every GPU, or its polled power where there is no series, in SVG."""
    lines: dict[str, tuple[Column, Column]] = {}
    for gpu in trace.gpus:
        times_ns, power_mw = power_samples(gpu, trace)
        every = max(1, len(times_ns) // MOST_POINTS)
        seconds = ((times_ns - energy.start_ns) / 1e9)[::every]
        lines[gpu_label(gpu.uuid, gpu.index)] = seconds, (power_mw / 1e3)[::every]
    more_y = LABEL_HEIGHT * ((len(lines) - 1) // LABELS_A_ROW)
    top, height = TOP + more_y, HEIGHT + more_y
    drawn = [time_s for time_s, _ in lines.values() if len(time_s)]
    length_s = energy.duration_s
    first_s = min([0.0, *(float(time_s[0]) for time_s in drawn)])
    last_s = max([length_s, *(float(time_s[-1]) for time_s in drawn)])
    top_w = 1.05 * max([1.0, *(float(power_w.max()) for _, power_w in lines.values() if len(power_w))])

    def x(time_s: Column | float) -> Column:
        return np.asarray(LEFT + (np.asarray(time_s) - first_s) / (last_s - first_s) * (WIDTH - LEFT - RIGHT))

    def y(power_w: Column | float) -> Column:
        return np.asarray(height - BOTTOM - np.asarray(power_w) / top_w * (height - top - BOTTOM))

    start_x, end_x, floor_y = float(x(0.0)), float(x(length_s)), float(y(0.0))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"',
        '  font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<rect x="{start_x:.1f}" y="{top}" width="{end_x - start_x:.1f}" height="{floor_y - top:.1f}" fill="#eee"/>',
    ]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        at_y, at_s = float(y(part * top_w)), first_s + part * (last_s - first_s)
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y:.1f}" y2="{at_y:.1f}" stroke="#ccc"/>',
            f'<text x="{LEFT - 6}" y="{at_y + 4:.1f}" text-anchor="end">{part * top_w:.0f} W</text>',
            f'<text x="{float(x(at_s)):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{at_s:.2f} s</text>',
        ]
    for number, (name, (time_s, power_w)) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in zip(x(time_s), y(power_w), strict=True))
        row, column = divmod(number, LABELS_A_ROW)
        label_x, label_y = LEFT + LABEL_WIDTH * column, TOP - 10 + LABEL_HEIGHT * row
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{color}"/>',
            f'<text x="{label_x}" y="{label_y}" fill="{color}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
