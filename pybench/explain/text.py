"""Measured beside predicted, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from pybench.core.node_ranges import node_ranges
from pybench.core.numbers import percent, plain, quantity, signed_percent
from pybench.explain.notes import stated_once
from pybench.explain.values import (
    ExplainedBaseline,
    ExplainedPhase,
    ExplainedPoint,
    ExplainedTurn,
    Explanation,
    Extrapolation,
)
from pybench.model.results import Estimate
from pybench.report.run.rows import Table
from pybench.report.text.printable import printable
from pybench.report.text.table import draw_tables

NO_NAMES: Mapping[str, str] = MappingProxyType({})
"""Points have their ids in full."""
_PART_HEADS = {"communication": "comm."}
_LABEL = "Prediction, not measured: speedup over one GPU, more GPUs joined as these"


def render(
    explanation: Explanation, names: Mapping[str, str] = NO_NAMES, *, width: int = 80, color: bool = False
) -> str:
    """Turns, speedups, what each shortfall is made of, the fits behind them, predictions for more GPUs, and notes.

    ``names`` are labels of points by id, for the tables.
    """
    tables = [
        *floor_tables(explanation, names),
        *(_speedups(explanation, names), _shortfalls(explanation, names), _clocks(explanation, names)),
        *(_fits(explanation), _predictions(explanation)),
    ]
    head = _wrapped(f"{explanation.run_id}, explained by {explanation.node_run_id}", width)
    noted = "".join(_wrapped(note, width, indent="  ") for note in notes(explanation))
    drawn = draw_tables([table.without_empty_columns() for table in tables if table.rows], width=width, color=color)
    return head + drawn + (f"\nNotes\n{noted}" if noted else "")


def notes(explanation: Explanation) -> Iterator[str]:
    """Why points are not predicted and what bounds baselines, each once with the points it holds for; then cautions."""
    points: tuple[ExplainedBaseline | ExplainedPoint, ...] = (*explanation.baselines, *explanation.points)
    noted = [(point.point_id, f"not predicted: {point.reason}") for point in points if point.reason is not None]
    noted += [(point.point_id, point.bound) for point in explanation.baselines if point.bound is not None]
    noted += [(point.point_id, point.wait) for point in explanation.points if point.wait is not None]
    yield from stated_once(noted)
    yield from explanation.notes


def _wrapped(text: str, width: int, indent: str = "") -> str:
    """Lines within ``width``; a long name stays whole."""
    wrapper = textwrap.TextWrapper(
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{wrapper.fill(printable(text))}\n"


def floor_tables(explanation: Explanation, names: Mapping[str, str] = NO_NAMES) -> tuple[Table, ...]:
    """Turns and baselines beside what their work needs at the node's own rates, the tables that have rows."""
    return tuple(table for table in (*_turns(explanation, names), _baselines(explanation, names)) if table.rows)


def _turns(explanation: Explanation, names: Mapping[str, str]) -> tuple[Table, Table]:
    """What each turn takes beyond the work that it is for, and every phase of every turn."""
    turns = ("point", "turn", "alone", "taking turns adds", "switch", "floor of the switch")
    phases = ("point", "phase", "measured", "alone", "floor", "floor over measured")
    rows = tuple(_phase(_name(names, turn), phase) for turn in explanation.turns for phase in turn.phases)
    of_turns = tuple(_turn(_name(names, turn), turn) for turn in explanation.turns)
    return (
        Table("Turns beside generating and training alone", turns, of_turns),
        Table("Phases of a turn, the same work alone, and at least", phases, rows),
    )


def _name(names: Mapping[str, str], point: ExplainedBaseline | ExplainedPoint | ExplainedTurn) -> str:
    return names.get(point.point_id, point.point_id)


def _turn(name: str, turn: ExplainedTurn) -> tuple[str, ...]:
    alone, floor = turn.alone_s, turn.switch_floor_s
    return (
        name,
        _seconds(turn.turn_s),
        "-" if alone is None else _seconds(alone),
        "-" if alone is None else _seconds(turn.turn_s - alone),
        _seconds(turn.switch_s),
        "-" if floor is None else _seconds(floor),
    )


def _phase(name: str, phase: ExplainedPhase) -> tuple[str, ...]:
    floor = phase.floor_s
    return (
        name,
        phase.name,
        _seconds(phase.measured_s),
        "-" if phase.alone_s is None else _seconds(phase.alone_s),
        "-" if floor is None else _seconds(floor),
        percent(floor / phase.measured_s) if floor and phase.measured_s else "-",
    )


def _baselines(explanation: Explanation, names: Mapping[str, str]) -> Table:
    """What the work of each baseline needs at the node's own rates, what it takes beyond, and the share of the step."""
    found = [(one, one.parts, one.beyond_s) for one in explanation.baselines if one.parts]
    shown = _part_names(parts for _, parts, _ in found)
    rows = tuple(
        (
            _name(names, one),
            _seconds(one.measured_s),
            *(_seconds(parts[name]) for name in shown),
            "-" if beyond_s is None else _seconds(beyond_s),
            percent(sum(parts.values()) / one.measured_s),
        )
        for one, parts, beyond_s in found
    )
    return Table("Baselines at the node's own rates", ("point", "step", *_heads(shown), "beyond", "of the step"), rows)


def _speedups(explanation: Explanation, names: Mapping[str, str]) -> Table:
    heads = ("point", "step", "predicted", "speedup", "predicted", "off by")
    rows = tuple(_speedup(_name(names, point), point) for point in explanation.points)
    return Table("Measured and predicted", heads, rows)


def _speedup(name: str, point: ExplainedPoint) -> tuple[str, ...]:
    predicted = point.predicted_speedup
    return (
        name,
        _seconds(point.measured_s),
        "-" if point.predicted_s is None else _seconds(point.predicted_s),
        f"{point.measured_speedup:.3f}x",
        "-" if predicted is None else f"{predicted:.3f}x",
        "-" if predicted is None else signed_percent(predicted / point.measured_speedup - 1),
    )


def _shortfalls(explanation: Explanation, names: Mapping[str, str]) -> Table:
    """Without the parts that no point has."""
    found = [(point, point.parts, point.shortfall_s) for point in explanation.points if point.parts]
    shown = _part_names(parts for _, parts, _ in found)
    rows = tuple(
        (
            _name(names, point),
            "-" if shortfall_s is None else _seconds(shortfall_s),
            *(_seconds(parts[name]) for name in shown),
        )
        for point, parts, shortfall_s in found
    )
    return Table("Longer than the GPUs' share, and why", ("point", "in all", *_heads(shown)), rows)


def _heads(parts: Iterable[str]) -> Iterator[str]:
    return (_PART_HEADS.get(name, name) for name in parts)


def _part_names(found: Iterable[dict[str, float]]) -> tuple[str, ...]:
    """Of the parts that any point has."""
    return tuple(dict.fromkeys(name for parts in found for name, part_s in parts.items() if part_s))


def _clocks(explanation: Explanation, names: Mapping[str, str]) -> Table:
    """Of points without a prediction as well, where anything is known of them."""
    rows = tuple(
        (
            _name(names, point),
            _held(point.power_limited),
            _held(point.baseline_power_limited),
            *map(_fraction, (point.clock_fraction, point.power_fraction)),
        )
        for point in explanation.points
        if any(one is not None for one in (point.power_limited, point.clock_fraction, point.power_fraction))
    )
    heads = ("point", "at power limit", "baseline at power limit", "clock", "power")
    return Table("Clocks and power of a GPU beside the baseline's", heads, rows)


def _fraction(value: float | None) -> str:
    return "unknown" if value is None else signed_percent(value)


def _held(names: tuple[str, ...] | None) -> str:
    return "unknown" if names is None else node_ranges(names) or "none"


def _fits(explanation: Explanation) -> Table:
    """Latency and bandwidth as fitted to the node's size curves."""
    rows = tuple(
        (
            fit.operation,
            f"{fit.num_gpus} over {fit.num_nodes} nodes" if fit.num_nodes > 1 else str(fit.num_gpus),
            _seconds(fit.latency_s),
            "-" if fit.bytes_per_s is None else _quantity(fit.bytes_per_s, "bytes/s"),
            percent(fit.misfit_fraction),
        )
        for fit in explanation.fits
    )
    return Table(
        "Collectives as fitted", ("operation", "GPUs", "latency", "bytes over time", "worst size off by"), rows
    )


def _predictions(explanation: Explanation) -> Table:
    return Table(
        _LABEL, ("benchmark", "GPUs", "speedup", "laws give"), tuple(map(_prediction, explanation.extrapolations))
    )


def _prediction(found: Extrapolation) -> tuple[str, ...]:
    axes = ",".join(f"{name}={value}" for name, value in found.group.items())
    return (
        f"{found.benchmark}[{axes}]" if axes else found.benchmark,
        str(found.num_gpus),
        f"{plain(found.speedup, 3)}x",
        f"[{plain(found.low, 3)}, {plain(found.high, 3)}]" if found.low < found.high else "-",
    )


def _seconds(value: float) -> str:
    return _quantity(value, "s")


def _quantity(value: float, unit: str) -> str:
    return quantity(Estimate(value=value, low=None, high=None, unit=unit))
