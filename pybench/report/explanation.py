"""Measured beside predicted, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pybench.model.explanation import (
    ExplainedBaseline,
    ExplainedPhase,
    ExplainedPoint,
    ExplainedTurn,
    Explanation,
    Extrapolation,
)
from pybench.model.results import Estimate
from pybench.report.numbers import percent, quantity
from pybench.report.printable import printable
from pybench.report.rows import Table
from pybench.report.text_table import draw_tables

_LABEL = "Prediction, not measured: speedup over one GPU, more GPUs joined as these"


def render(explanation: Explanation, *, width: int = 80, color: bool = False) -> str:
    """Turns, speedups, what each shortfall is made of, the fits behind them, and predictions for more GPUs."""
    tables = [
        *floor_tables(explanation),
        *(_speedups(explanation), _shortfalls(explanation), _power_limits(explanation)),
        *(_fits(explanation), _predictions(explanation)),
    ]
    head = f"{explanation.run_id}, explained by {explanation.node_run_id}\n"
    noted = "".join(f"note: {note}\n" for note in notes(explanation))
    return _lines(head + noted, width) + draw_tables([t for t in tables if t.rows], width=width, color=color)


def notes(explanation: Explanation) -> Iterator[str]:
    """Each reason for which points are not predicted, with the points; what bounds a baseline instead; cautions."""
    found: dict[str, list[str]] = {}
    points: tuple[ExplainedBaseline | ExplainedPoint, ...] = (*explanation.baselines, *explanation.points)
    for point in points:
        if point.reason is not None:
            found.setdefault(point.reason, []).append(point.point_id)
    for reason, names in found.items():
        yield f"{', '.join(names)}: not predicted: {reason}"
    yield from (f"{point.point_id}: {point.bound}" for point in explanation.baselines if point.bound)
    yield from explanation.notes


def _lines(text: str, width: int) -> str:
    """Each line within ``width``; a long name stays whole."""
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "".join(f"{wrapper.fill(printable(line))}\n" for line in text.splitlines())


def floor_tables(explanation: Explanation) -> tuple[Table, ...]:
    """Turns and baselines beside what their work needs at the node's own rates, the tables that have rows."""
    return tuple(table for table in (*_turns(explanation), _baselines(explanation)) if table.rows)


def _turns(explanation: Explanation) -> tuple[Table, Table]:
    """What each turn takes beyond the work that it is for, and every phase of every turn."""
    turns = ("point", "turn", "alone", "taking turns adds", "switch", "floor of the switch")
    phases = ("point", "phase", "measured", "alone", "floor", "floor over measured")
    rows = tuple(_phase(turn, phase) for turn in explanation.turns for phase in turn.phases)
    return (
        Table("Turns beside generating and training alone", turns, tuple(map(_turn, explanation.turns))),
        Table("Phases of a turn, the same work alone, and at least", phases, rows),
    )


def _turn(turn: ExplainedTurn) -> tuple[str, ...]:
    alone, floor = turn.alone_s, turn.switch_floor_s
    return (
        turn.point_id,
        _seconds(turn.turn_s),
        "-" if alone is None else _seconds(alone),
        "-" if alone is None else _seconds(turn.turn_s - alone),
        _seconds(turn.switch_s),
        "-" if floor is None else _seconds(floor),
    )


def _phase(turn: ExplainedTurn, phase: ExplainedPhase) -> tuple[str, ...]:
    floor = phase.floor_s
    return (
        turn.point_id,
        phase.name,
        _seconds(phase.measured_s),
        "-" if phase.alone_s is None else _seconds(phase.alone_s),
        "-" if floor is None else _seconds(floor),
        percent(floor / phase.measured_s) if floor and phase.measured_s else "-",
    )


def _baselines(explanation: Explanation) -> Table:
    """What the work of each baseline needs at the node's own rates, what it takes beyond, and the share of the step."""
    found = [(one, one.parts, one.beyond_s) for one in explanation.baselines if one.parts]
    names = dict.fromkeys(name for _, parts, _ in found for name, part_s in parts.items() if part_s)
    rows = tuple(
        (
            one.point_id,
            _seconds(one.measured_s),
            *(_seconds(parts[name]) for name in names),
            "-" if beyond_s is None else _seconds(beyond_s),
            percent(sum(parts.values()) / one.measured_s),
        )
        for one, parts, beyond_s in found
    )
    return Table("Baselines at the node's own rates", ("point", "step", *names, "beyond", "of the step"), rows)


def _speedups(explanation: Explanation) -> Table:
    heads = ("point", "step", "predicted", "speedup", "predicted", "off by")
    return Table("Measured and predicted", heads, tuple(_speedup(point) for point in explanation.points))


def _speedup(point: ExplainedPoint) -> tuple[str, ...]:
    predicted = point.predicted_speedup
    return (
        point.point_id,
        _seconds(point.measured_s),
        "-" if point.predicted_s is None else _seconds(point.predicted_s),
        f"{point.measured_speedup:.3f}x",
        "-" if predicted is None else f"{predicted:.3f}x",
        "-" if predicted is None else f"{predicted / point.measured_speedup - 1:+.1%}",
    )


def _shortfalls(explanation: Explanation) -> Table:
    """Without the parts that no point has."""
    found = [(point, point.parts, point.shortfall_s) for point in explanation.points if point.parts]
    names = dict.fromkeys(name for _, parts, _ in found for name, part_s in parts.items() if part_s)
    rows = tuple(
        (
            point.point_id,
            "-" if shortfall_s is None else _seconds(shortfall_s),
            *(_seconds(parts[name]) for name in names),
        )
        for point, parts, shortfall_s in found
    )
    return Table("Longer than the GPUs' share, and why", ("point", "in all", *names), rows)


def _power_limits(explanation: Explanation) -> Table:
    """Of points without a prediction as well."""
    rows = tuple(
        (
            point.point_id,
            _held(point.power_limited),
            _held(point.baseline_power_limited),
            "unknown" if point.clock_fraction is None else f"{point.clock_fraction:+.1%}",
        )
        for point in explanation.points
        if point.parts or point.power_limited is not None
    )
    heads = ("point", "at power limit", "baseline at power limit", "clock")
    return Table("Clocks beside the baseline's", heads, rows)


def _held(names: tuple[str, ...] | None) -> str:
    return "unknown" if names is None else ", ".join(names) or "none"


def _fits(explanation: Explanation) -> Table:
    """Latency and bandwidth as fitted to the node's size curves."""
    rows = tuple(
        (
            fit.operation,
            f"{fit.num_gpus} over {fit.num_nodes} nodes" if fit.num_nodes > 1 else str(fit.num_gpus),
            _seconds(fit.latency_s),
            "-" if fit.bytes_per_s is None else _quantity(fit.bytes_per_s, "bytes/s"),
            f"{fit.misfit_fraction:.1%}",
        )
        for fit in explanation.fits
    )
    return Table(
        "Collectives as fitted", ("operation", "GPUs", "latency", "bytes over time", "worst size off by"), rows
    )


def _predictions(explanation: Explanation) -> Table:
    return Table(
        _LABEL, ("benchmark", "GPUs", "speedup", "interval"), tuple(map(_prediction, explanation.extrapolations))
    )


def _prediction(found: Extrapolation) -> tuple[str, ...]:
    axes = ",".join(f"{name}={value}" for name, value in found.group.items())
    return (
        f"{found.benchmark}[{axes}]" if axes else found.benchmark,
        str(found.num_gpus),
        f"{found.speedup:.3g}x",
        f"[{found.low:.3g}, {found.high:.3g}]",
    )


def _seconds(value: float) -> str:
    return _quantity(value, "s")


def _quantity(value: float, unit: str) -> str:
    return quantity(Estimate(value=value, low=None, high=None, unit=unit))
