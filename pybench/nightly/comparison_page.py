"""The page of a comparison: a run beside its references, each row's change with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from pybench.model.figures import Change, RunComparison, RunFigures
from pybench.model.workloads.registry import METRICS
from pybench.nightly.comparison import BY_IMPORTANCE
from pybench.nightly.comparison_text import reason_text, way_on
from pybench.report.page import svg
from pybench.report.page.charts import Chart
from pybench.report.page.document import document
from pybench.report.table import Cell, Table, printable
from pybench.report.text.change_words import (
    difference_text,
    ends_text,
    fraction_text,
    metric_words,
    percent_text,
    value_text,
)
from pybench.report.text.labels import labels_of_runs, verdict_words

_LEFT, _RIGHT, _WIDTH, _LANE = 250, 744, 760, 22
_MOST_LANES = 80
_HEADS = ("point", "metric", "before", "now", "change", "difference", "reason", "verdict")


def render(comparison: RunComparison, run: RunFigures, references: Sequence[RunFigures]) -> str:
    """One HTML file. ``references`` are all that were named, also those that are left out."""
    names = labels_of_runs((*references, run))
    table = Table("Rows", _HEADS, tuple(_row(change, names, n) for n, change in enumerate(comparison.changes)))
    num, runs = len(comparison.differences), (run, *references)
    roles = dict.fromkeys(comparison.reference_ids, "before") | {comparison.run_id: "now"}
    return document(
        "comparison.html.j2",
        comparison=comparison,
        judged=f"{num} things that must be equal differ" if num else reason_text(comparison),
        way_on=way_on(comparison),
        chart=change_chart(comparison.changes, names, comparison.effects.default),
        table=table,
        verdicts=[verdict for verdict in BY_IMPORTANCE if verdict in table.verdicts],
        added=[(names.get(row.point_id, row.point_id), metric_words(row.metric)) for row in comparison.added],
        runs=[
            (one.run_id, roles.get(one.run_id, "left out"), one.created_utc, verdict_words(one.verdict)) for one in runs
        ],
        keys=_keys(run, references),
        heads=("key", run.run_id, *(one.run_id for one in references)),
    )


def change_chart(changes: Sequence[Change], names: Mapping[str, str], effect: float) -> Chart | None:
    """Each row's change and its interval, between the limits of what counts as none. ``None`` without a change."""
    found = [change for change in changes if change.fraction is not None]
    shown = found[:_MOST_LANES]
    if not shown:
        return None
    reach = 1.08 * max(effect, *(abs(x) for c in shown for x in (c.fraction, c.low, c.high) if x is not None))
    height = svg.TOP + svg.BOTTOM + _LANE * len(shown)
    bottom = svg.TOP + _LANE * len(shown)

    def x(fraction: float) -> float:
        return _LEFT + (fraction + reach) / (2 * reach) * (_RIGHT - _LEFT)

    band = [(x(-effect), svg.TOP), (x(effect), svg.TOP), (x(effect), bottom), (x(-effect), bottom)]
    parts = [svg.polygon(band, "band")]
    for mark in svg.ticks(reach, 3):
        for side in dict.fromkeys((mark, -mark)):
            parts.append(svg.line((x(side), svg.TOP), (x(side), bottom), "grid" if mark else "axis"))
            parts.append(svg.text(x(side), bottom + 18, f"{100 * side:+.3g} %" if mark else "0", "middle"))
    parts.append(svg.text((_LEFT + _RIGHT) / 2, height - 6, "change", "middle", "name"))
    parts += [_lane(place, change, names, x) for place, change in enumerate(shown)]
    title = "Changes with their 95 % intervals"
    more = "" if len(shown) == len(found) else f", of {len(found)} the {len(shown)} most important"
    described = f"{len(shown)} rows{more}; the table has every figure"
    return Chart(title + more, svg.figure(title, described, parts, _WIDTH, height), (), (), (), ("expected",))


def _lane(place: int, change: Change, names: Mapping[str, str], x: Callable[[float], float]) -> Markup:
    assert change.fraction is not None
    y = svg.TOP + _LANE * (place + 0.5)
    label = f"{names.get(change.row.point_id, change.row.point_id)} {metric_words(change.row.metric)}"
    tip = f"{label}: {percent_text(change)}, {change.verdict}"
    shown = label if len(label) < 40 else f"{label[:39]}…"  # noqa: PLR2004 - the room at the left
    parts = [svg.text(_LEFT - 10, y + 4, shown, "end")]
    number = 0 if change.verdict in {"improved", "unchanged"} else 1 if change.verdict == "regressed" else 2
    if change.low is not None and change.high is not None:
        parts.append(svg.line((x(change.low), y), (x(change.high), y), f"error verdict{number}"))
    mark = Markup('<g class="verdict{}">{}</g>').format(number, svg.marker((x(change.fraction), y), number, tip))
    return Markup("").join([*parts, mark])


def _row(change: Change, names: Mapping[str, str], number: int) -> tuple[str, ...]:
    metric = METRICS.get(change.row.metric)
    better = "" if metric is None else "more is better" if metric.higher_is_better else "less is better"
    return (
        Cell(names.get(change.row.point_id, change.row.point_id), number),
        Cell(metric_words(change.row.metric), None, better),
        Cell(value_text(change.before, change.unit), change.before),
        Cell(value_text(change.now, change.unit), change.now),
        Cell(fraction_text(change), change.fraction, ends_text(change)),
        Cell(difference_text(change), change.difference),
        printable(change.reason),
        change.verdict,
    )


def _keys(run: RunFigures, references: Sequence[RunFigures]) -> list[tuple[str, ...]]:
    """What must be equal: of every run, the keys that differ first."""
    names = dict.fromkeys(name for one in (run, *references) for name in one.keys)
    rows = [(name, *(str(one.keys.get(name, "none")) for one in (run, *references))) for name in names]
    return sorted(rows, key=lambda row: len(set(row[1:])) == 1)
