"""The parts of each shortfall, as stacked bars: added time to the right of the ideal, saved time to the left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from markupsafe import Markup

from pybench.core.numbers import quantity
from pybench.explain.command import explanation_of
from pybench.explain.text import floor_tables, notes
from pybench.explain.values import ExplainedPoint, Explanation
from pybench.files.run.folder import RunFolder
from pybench.model.errors import UsageError
from pybench.model.results import Estimate
from pybench.report.page import svg
from pybench.report.page.charts import Chart, Section
from pybench.report.run.view import RunView
from pybench.report.text.labels import short_labels
from pybench.report.text.printable import printable

_LEFT, _RIGHT, _WIDTH, _LANE = 230, 744, 760, 34
_PERCENT = 100.0
_MARGIN = 1.05


def explained_section(view: RunView, run_path: Path, node_path: Path) -> Section:
    """``pybench report --node``: the explanation of a run's folder by a node's run. Raises ``UsageError``."""
    if view.path is None or view.manifest is None:
        raise UsageError(f"{run_path}: --node needs the run's folder, as its attempts are not in results.json")
    explanation = explanation_of(RunFolder.open(view.path), view.manifest, node_path)
    return section_of(explanation, short_labels(view.results.points, with_benchmark=True))


def section_of(explanation: Explanation, names: Mapping[str, str]) -> Section:
    """Notes, the baselines' table, and a bar for each shortfall."""
    return Section(
        title="Explanation",
        notes=tuple(notes(explanation)),
        tables=floor_tables(explanation, names),
        chart=attribution_chart(explanation, names),
        hint="A bar is what a step takes beyond the baseline's step over the ratio of GPUs, by the causes that the "
        "node's own figures predict; parts to the left of the ideal save time.",
    )


def attribution_chart(explanation: Explanation, names: Mapping[str, str]) -> Chart | None:
    """Parts of each point's shortfall over the share of the baseline's step that its GPUs should take, in per cent.

    ``names`` are labels of points by id. ``None`` where no shortfall could be attributed.
    """
    shown = [point for point in explanation.points if point.parts and _ideal_s(point) > 0]
    if not shown:
        return None
    parts = tuple(dict.fromkeys(name for point in shown for name in point.parts or {}))
    low = _MARGIN * min(-1.0, *(sum(min(value, 0.0) for value in _percent(point).values()) for point in shown))
    high = _MARGIN * max(1.0, *(sum(max(value, 0.0) for value in _percent(point).values()) for point in shown))
    height = svg.TOP + svg.BOTTOM + _LANE * len(shown)

    def x(percent: float) -> float:
        return _LEFT + (percent - low) / (high - low) * (_RIGHT - _LEFT)

    drawn = [_grid(low, high, len(shown), height)]
    for place, point in enumerate(shown):
        drawn.append(_bars(place, names.get(point.point_id, point.point_id), point, parts, x))
    drawn.append(svg.line((x(0), svg.TOP), (x(0), svg.TOP + _LANE * len(shown)), "axis"))
    heads = ("point", "step", "ideal", *parts)
    rows = tuple(_row(names.get(point.point_id, point.point_id), point, parts) for point in shown)
    title = "The parts of each shortfall"
    described = f"{len(shown)} points, parts of the step beyond the ideal; the table has every figure"
    return Chart(title, svg.figure(title, described, drawn, _WIDTH, height), parts, heads, rows)


def _ideal_s(point: ExplainedPoint) -> float:
    """The baseline's step over the ratio of GPUs."""
    return point.measured_s - (point.shortfall_s or 0.0)


def _percent(point: ExplainedPoint) -> dict[str, float]:
    return {name: _PERCENT * value / _ideal_s(point) for name, value in (point.parts or {}).items()}


def _grid(low: float, high: float, num_lanes: int, height: int) -> Markup:
    bottom = svg.TOP + _LANE * num_lanes
    step = svg.ticks(high - low, 8)[1]
    first = int(low // step)
    marks = [mark * step for mark in range(first, int(high // step) + 1) if mark * step >= low]
    parts = []
    for mark in marks:
        at = _LEFT + (mark - low) / (high - low) * (_RIGHT - _LEFT)
        parts.append(svg.line((at, svg.TOP), (at, bottom), "grid"))
        parts.append(svg.text(at, bottom + 18, f"{mark:+g} %" if mark else "ideal", "middle"))
    parts.append(svg.text((_LEFT + _RIGHT) / 2, height - 6, "of the ideal step", "middle", "name"))
    return Markup("").join(parts)


def _bars(place: int, name: str, point: ExplainedPoint, parts: tuple[str, ...], x: Callable[[float], float]) -> Markup:
    top = svg.TOP + _LANE * place
    drawn = [svg.text(_LEFT - 10, top + 21, name if len(name) < 36 else f"{name[:35]}…", "end")]  # noqa: PLR2004
    ends = {True: 0.0, False: 0.0}  # of the parts that add time, and of those that take some off
    for number, part in enumerate(parts):
        percent = _percent(point).get(part, 0.0)
        start = ends[percent >= 0]
        ends[percent >= 0] = start + percent
        left, right = sorted((x(start), x(start + percent)))
        tip = f"{name}: {part} {percent:+.1f} % of the ideal, {_seconds((point.parts or {}).get(part, 0.0))}"
        bar = Markup(
            '<rect class="bar series{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="22"><title>{}</title></rect>'
        )
        drawn.append(bar.format(number % 8, left, top + 6, right - left, printable(tip)))
    return Markup("").join(drawn)


def _row(name: str, point: ExplainedPoint, parts: tuple[str, ...]) -> tuple[str, ...]:
    percents = _percent(point)
    cells = (f"{_seconds((point.parts or {}).get(part, 0.0))} ({percents.get(part, 0.0):+.1f} %)" for part in parts)
    return name, _seconds(point.measured_s), _seconds(_ideal_s(point)), *cells


def _seconds(value: float) -> str:
    return quantity(Estimate(value=value, low=None, high=None, unit="s"))
