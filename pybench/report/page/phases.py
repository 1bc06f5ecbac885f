"""The phases of a step on one line of time: a lane for each point, its step of median length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from markupsafe import Markup

from pybench.core.numbers import percent, quantity
from pybench.core.phases import joint_spans
from pybench.model.results import Estimate
from pybench.model.wire import Span, Step
from pybench.model.workloads.turn import CHECK
from pybench.report.page import svg
from pybench.report.page.charts import Chart
from pybench.report.run.view import RunView
from pybench.report.text.printable import printable

_LEFT, _RIGHT, _WIDTH, _LANE = 230, 744, 760, 34
_MARGIN = 1.02
_MOST_LANES = 40
_JOINED = {"wake_weights": "wake", "wake_cache": "wake"}
"""Both of the engine's wakes have one colour, so that each phase of a turn has its own."""

Part = tuple[str, float]
"""Name of a phase, and its seconds."""


def phase_chart(view: RunView, names: Mapping[str, str]) -> Chart | None:
    """Phases in their order, checks left out; ``names`` are labels of points by id. ``None`` where no step has any."""
    lanes = {names.get(point_id, point_id): parts for point_id, parts in _lanes(view).items()}
    if not lanes:
        return None
    shown = dict(list(lanes.items())[:_MOST_LANES])
    phases = tuple(dict.fromkeys(name for parts in shown.values() for name, _ in parts))
    longest = _MARGIN * max(_length(parts) for parts in shown.values())
    height = svg.TOP + svg.BOTTOM + _LANE * len(shown)

    def x(seconds: float) -> float:
        return _LEFT + seconds / longest * (_RIGHT - _LEFT)

    drawn = [_grid(longest, len(shown), height, x)]
    drawn += [_lane(place, name, parts, phases, x) for place, (name, parts) in enumerate(shown.items())]
    rows = tuple(row for name, parts in lanes.items() for row in _rows(name, parts))
    title = "Phases of a step"
    described = f"{len(shown)} points, the phases of each one's median step in their order; the table has every figure"
    heads = ("point", "phase", "begins", "time", "of the step")
    return Chart(title, svg.figure(title, described, drawn, _WIDTH, height), phases, heads, rows)


def _lanes(view: RunView) -> dict[str, list[Part]]:
    """Of each point the phases of its median step, of all ranks together. Phases without time have no share of it."""
    steps: dict[str, list[list[Part]]] = {}
    for record in view.good_records:
        for ranks in zip(*(rank.steps for rank in record.ranks), strict=True):
            if _length(parts := _parts(ranks)) > 0:
                steps.setdefault(record.point_id, []).append(parts)
    return {point_id: sorted(found, key=_length)[(len(found) - 1) // 2] for point_id, found in steps.items()}


def _parts(ranks: Sequence[Step]) -> list[Part]:
    spans = [span for span in joint_spans(ranks) if span.name != CHECK]
    return [(_JOINED.get(span.name, span.name), _seconds(span)) for span in spans]


def _seconds(span: Span) -> float:
    return (span.end_ns - span.start_ns) / 1e9


def _length(parts: Sequence[Part]) -> float:
    return sum(seconds for _, seconds in parts)


def _starts(parts: Sequence[Part]) -> list[float]:
    return list(accumulate((seconds for _, seconds in parts), initial=0.0))[:-1]


def _grid(longest: float, num_lanes: int, height: int, x: Callable[[float], float]) -> Markup:
    bottom = svg.TOP + _LANE * num_lanes
    marks = [(x(mark), f"{mark:g}") for mark in svg.ticks(longest, 8)]
    drawn = [svg.line((at, svg.TOP), (at, bottom), "grid") for at, _ in marks]
    drawn += [svg.text(at, bottom + 18, words, "middle") for at, words in marks]
    return Markup("").join([*drawn, svg.text((_LEFT + _RIGHT) / 2, height - 6, "seconds", "middle", "name")])


def _lane(place: int, name: str, parts: Sequence[Part], phases: Sequence[str], x: Callable[[float], float]) -> Markup:
    top = svg.TOP + _LANE * place
    drawn = [svg.text(_LEFT - 10, top + 21, name if len(name) < 36 else f"{name[:35]}…", "end")]  # noqa: PLR2004
    bar = Markup('<rect class="bar series{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="22"><title>{}</title></rect>')
    for (phase, seconds), start in zip(parts, _starts(parts), strict=True):
        tip = printable(f"{name}: {phase} {_time(seconds)}, {percent(seconds / _length(parts))} of the step")
        drawn.append(bar.format(phases.index(phase) % 8, x(start), top + 6, x(start + seconds) - x(start), tip))
    return Markup("").join(drawn)


def _rows(name: str, parts: Sequence[Part]) -> list[tuple[str, ...]]:
    return [
        (name, phase, _time(start), _time(seconds), percent(seconds / _length(parts)))
        for (phase, seconds), start in zip(parts, _starts(parts), strict=True)
    ]


def _time(seconds: float) -> str:
    return quantity(Estimate(value=seconds, low=None, high=None, unit="s"))
