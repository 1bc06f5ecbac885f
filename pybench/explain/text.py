"""An explanation as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pybench.core.measurements import grouped
from pybench.core.numbers import node_ranges, percent, signed_percent
from pybench.explain.values import ExplainedBaseline, ExplainedPoint, Explanation
from pybench.report.table import Table, wrapped
from pybench.report.text.change_words import value_text
from pybench.report.text.table import Paper

_PART_HEADS = {"communication": "comm."}


def render(explanation: Explanation, names: Mapping[str, str], *, width: int = 80, color: bool = False) -> str:
    """Baselines, speedups, parts of each shortfall, clocks, and notes. ``names`` are labels of points by id."""
    head = wrapped(f"{explanation.run_id}, explained by {explanation.node_run_id}", width, after="  ")
    noted = [line for note in notes(explanation) for line in wrapped(note, width, "  ", "    ")]
    out = Paper(width, color=color)
    for table in (*tables_of(explanation, names), _clocks(explanation, names)):
        out.table(table.without_empty_columns())
    return "\n".join((*head, out.text())) + "\n".join(("\nNotes", *noted, "") if noted else ())


def notes(explanation: Explanation) -> Iterator[str]:
    """Reasons without a prediction, bounds of baselines and waits, each once with its points; then cautions."""
    points: tuple[ExplainedBaseline | ExplainedPoint, ...] = (*explanation.baselines, *explanation.points)
    noted = [(f"not predicted: {point.reason}", point.point_id) for point in points if point.reason is not None]
    noted += [(point.bound, point.point_id) for point in explanation.baselines if point.bound is not None]
    noted += [(point.wait, point.point_id) for point in explanation.points if point.wait is not None]
    yield from (f"{', '.join(names)}: {sentence}" for sentence, names in grouped(noted).items())
    yield from explanation.notes


def tables_of(explanation: Explanation, names: Mapping[str, str]) -> tuple[Table, ...]:
    """Baselines at the node's own rates, measured and predicted speedups, and the parts of each shortfall."""
    speedups = tuple(
        (
            names.get(point.point_id, point.point_id),
            value_text(point.measured_s, "s"),
            value_text(point.predicted_s, "s"),
            f"{point.measured_speedup:.3f}x",
            "-" if (predicted := point.predicted_speedup) is None else f"{predicted:.3f}x",
            "-" if predicted is None else signed_percent(predicted / point.measured_speedup - 1),
        )
        for point in explanation.points
    )
    baselines = [
        (base.point_id, {"step": base.measured_s, **parts, "beyond": base.beyond_s}, share)
        for base in explanation.baselines
        if (parts := base.parts) and (share := sum(parts.values()) / base.measured_s)
    ]
    shortfalls = [(p.point_id, {"in all": p.shortfall_s, **p.parts}, None) for p in explanation.points if p.parts]
    heads = ("point", "step", "predicted", "speedup", "predicted", "off by")
    return (
        _seconds_table("Baselines at the node's own rates", baselines, names),
        Table("Measured and predicted", heads, speedups),
        _seconds_table("Longer than the GPUs' share, and why", shortfalls, names),
    )


def _seconds_table(
    title: str, rows: Sequence[tuple[str, Mapping[str, float | None], float | None]], names: Mapping[str, str]
) -> Table:
    """A column for each part of a step that any row has; ``rows`` also have the share of counted work."""
    shown = [part for part in (rows[0][1] if rows else ()) if any(seconds[part] for _, seconds, _ in rows)]
    cells = (
        (names.get(name, name), *(value_text(seconds[part], "s") for part in shown), percent(share))
        for name, seconds, share in rows
    )
    return Table(title, ("point", *(_PART_HEADS.get(part, part) for part in shown), "of the step"), tuple(cells))


def _clocks(explanation: Explanation, names: Mapping[str, str]) -> Table:
    """Also of points without a prediction, if their clocks or power are known."""
    rows = tuple(
        (
            names.get(point.point_id, point.point_id),
            *(
                "unknown" if held is None else node_ranges(held) or "none"
                for held in (point.power_limited, point.baseline_power_limited)
            ),
            *("unknown" if value is None else signed_percent(value) for value in fractions),
        )
        for point in explanation.points
        if (fractions := (point.clock_fraction, point.power_fraction)) != (None, None)
        or point.power_limited is not None
    )
    heads = ("point", "at power limit", "baseline at power limit", "clock", "power")
    return Table("Clocks and power of a GPU against the baseline's", heads, rows)
