"""The page of a history: each row's values over the nights, with the spread between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from markupsafe import Markup

from pybench.core.keys import differing
from pybench.core.numbers import signed_percent
from pybench.model.figures import FigureKey
from pybench.model.workloads.registry import METRICS
from pybench.nightly.accepted import about
from pybench.nightly.gate import judge_night
from pybench.nightly.history import History, Series, Trend, trends
from pybench.nightly.history_text import left_out, trend_cells
from pybench.nightly.values import Accepted, LevelChange
from pybench.report.page import svg
from pybench.report.page.charts import Chart
from pybench.report.page.document import document
from pybench.report.table import Cell, Table, printable
from pybench.report.text.change_words import LEAST_RANGE_FRACTION, metric_words, value_text
from pybench.report.text.labels import labels_of_runs, verdict_words

_HEADS = ("point", "metric", "nights", "last", "change", "spread")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 520, 150, 66, 12, 12, 24
_SPREADS = 2.0
_MOST_CHARTS = 200
Scale = Callable[[float], float]


def render(history: History, series: Series, accepted: Sequence[Accepted] = ()) -> str:
    """One HTML file with the trend of every row of a series, its changes of level, and what is not in it."""
    accepted = about(series, accepted)
    names = labels_of_runs(series.runs)
    all_trends = tuple(trends(series))
    nights = [run.created_utc[:10] for run in series.runs]
    # Nights before which something changed that the runs may differ in.
    changed = {place: differing(before, now) for place, (before, now) in enumerate(pairwise(series.runs), start=1)}
    begun = {place: texts for place, texts in changed.items() if texts}
    levels = {row.row: row.level_change for row in judge_night(series, accepted).rows if row.level_change is not None}
    drawn = (
        trend_chart(trend, names, series, marks(trend.row, nights, begun, accepted, levels.get(trend.row)))
        for trend in all_trends[:_MOST_CHARTS]
    )
    return document(
        "history.html.j2",
        series=series,
        first=nights[0],
        last=nights[-1],
        left_out=list(left_out(history, series)),
        charts=[chart for chart in drawn if chart is not None],
        epochs=[(nights[place], "\n".join(texts)) for place, texts in begun.items()],
        accepted=[_accepted(entry, names) for entry in accepted],
        levels=[_level(row, change, names) for row, change in levels.items()],
        num_left=max(0, len(all_trends) - _MOST_CHARTS),
        table=Table("Rows", _HEADS, tuple(_row(trend, names, place) for place, trend in enumerate(all_trends))),
        runs=[(run.run_id, run.created_utc, verdict_words(run.verdict)) for run in reversed(series.runs)],
        keys=sorted((name, str(value)) for name, value in series.last.keys.items()),
    )


@dataclass(frozen=True)
class Mark:
    """A line before a night, of the class ``line``: an epoch begins, a change is accepted, or the level changes."""

    place: int
    words: str
    line: str


def marks(
    row: FigureKey,
    nights: Sequence[str],
    begun: Mapping[int, Sequence[str]],
    accepted: Sequence[Accepted],
    level: LevelChange | None,
) -> Iterator[Mark]:
    """Everything that happened to one row, each before the first of the ``nights`` (dates) that it concerns.

    ``begun`` are the beginnings of epochs by the place of their first night, with what changed.
    """
    for place, texts in begun.items():
        yield Mark(place, "; ".join(texts), "linear")
    dated = [(entry.since, f"accepted: {entry.reason}", "accepted") for entry in accepted if entry.is_of(row)]
    if level is not None:
        dated.append((level.since, f"level changed by {signed_percent(level.fraction)}", "level"))
    for since, words, line in dated:
        yield from [Mark(place, words, line) for place, night in enumerate(nights) if night >= since[:10]][:1]


def trend_chart(trend: Trend, names: Mapping[str, str], series: Series, events: Iterable[Mark]) -> Chart | None:
    """A row's value by night, the band of two standard deviations between earlier nights, the last night marked.

    A line marks each event, before its night.
    """
    known = [(place, value) for place, value in enumerate(trend.values) if value is not None]
    if not known:
        return None
    unit, band = METRICS[trend.row.metric].unit, _band(trend)
    low, high = _span([value for _, value in known], band)

    def x(place: float) -> float:
        return _LEFT + (place + 0.5) / len(trend.values) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [*_frame(low, high, unit, series, x, y)]
    if band:
        left, right = [[(at, y(value)) for value in band] for at in (_LEFT, _WIDTH - _RIGHT)]
        parts.insert(0, svg.polygon([*left, *reversed(right)], "band"))
    for mark in events:
        title = f"{series.runs[mark.place].created_utc[:10]}: {mark.words}"
        at = x(mark.place - 0.5)
        line = svg.line((at, _TOP), (at, _HEIGHT - _BOTTOM), mark.line)
        parts.append(Markup("<g><title>{}</title>{}</g>").format(printable(title), line))
    stretches = ([(x(place), y(value)) for place, value in stretch] for stretch in _stretches(trend.values))
    parts += [svg.polyline(stretch, "curve series0") for stretch in stretches]
    for place, value in known:
        tip = f"{series.runs[place].created_utc[:16]}: {value_text(value, unit)}"
        last = place == len(trend.values) - 1
        parts.append(svg.marker((x(place), y(value)), 1 if last else 0, tip, 5.0 if last else 2.5))
    title = f"{names[trend.row.point_id]}: {metric_words(trend.row.metric)}"
    described = f"{len(known)} nights, last {trend_cells(trend)[0]}"
    return Chart(title, svg.figure(title, described, parts, _WIDTH, _HEIGHT), (), (), ())


def _accepted(entry: Accepted, names: Mapping[str, str]) -> tuple[str, ...]:
    metric = "all" if entry.metric is None else metric_words(entry.metric)
    point = "all" if entry.point is None else names.get(entry.point, entry.point)
    return entry.since, point, metric, entry.reason


def _level(row: FigureKey, change: LevelChange, names: Mapping[str, str]) -> tuple[str, ...]:
    limits = f"{change.earliest[:10]} to {change.latest[:10]}"
    label = names.get(row.point_id, row.point_id)
    return label, metric_words(row.metric), change.since[:10], limits, signed_percent(change.fraction)


def _frame(low: float, high: float, unit: str, series: Series, x: Scale, y: Scale) -> list[Markup]:
    parts = []
    for value in (low, (low + high) / 2, high):
        parts.append(svg.line((_LEFT, y(value)), (_WIDTH - _RIGHT, y(value)), "grid"))
        parts.append(svg.text(_LEFT - 6, y(value) + 4, value_text(value, unit).split(" ")[0], "end"))
    for place, anchor in dict.fromkeys(((0, "start"), (len(series.runs) - 1, "end"))):
        parts.append(svg.text(x(place), _HEIGHT - 6, series.runs[place].created_utc[:10], anchor))
    return parts


def _band(trend: Trend) -> tuple[float, float] | None:
    """Of two spreads about the median of the nights before the last."""
    earlier = [value for value in trend.values[:-1] if value is not None and value > 0]
    if trend.spread_fraction is None or not earlier:
        return None
    centre, factor = median(earlier), math.exp(_SPREADS * trend.spread_fraction)
    return centre / factor, centre * factor


def _span(values: Sequence[float], band: tuple[float, float] | None) -> tuple[float, float]:
    """Ends of the axis: all that is drawn, and at least 2 % of the middle, so that noise does not look like news."""
    low, high = min((*values, *(band or ()))), max((*values, *(band or ())))
    room = max(1.1 * (high - low), LEAST_RANGE_FRACTION * abs(median(values)), 1e-30)
    return (low + high - room) / 2, (low + high + room) / 2


def _stretches(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Nights next to each other that have a value; a line does not bridge a night without."""
    stretches: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            stretches.append([])
        else:
            stretches[-1].append((place, value))
    return [stretch for stretch in stretches if len(stretch) > 1]


def _row(trend: Trend, names: Mapping[str, str], place: int) -> tuple[str, ...]:
    nights = sum(value is not None for value in trend.values)
    better = "more is better" if METRICS[trend.row.metric].higher_is_better else "less is better"
    last, change, spread = trend_cells(trend)
    return (
        Cell(names[trend.row.point_id], place),
        Cell(metric_words(trend.row.metric), None, better),
        Cell(f"{nights} of {len(trend.values)}", nights),
        Cell(last, trend.values[-1]),
        Cell(change, trend.fraction),
        Cell(spread, trend.spread_fraction),
    )
