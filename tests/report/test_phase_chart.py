"""Phases of a step on the page: a lane for each point, of its median step."""

from __future__ import annotations

from dataclasses import replace
from html import unescape

from pybench.model.results import Results
from pybench.model.suite import Plan
from pybench.model.wire import Span, Step, Work
from pybench.report.page.phases import phase_chart
from pybench.report.page.render import render
from pybench.report.run.view import RunView
from tests.build import Build
from tests.builders import MANIFEST

_SECOND = 1_000_000_000
# The engine wakes twice, and checks belong to no turn.
_PARTS = (("generate", 8), ("engine_sleep", 1), ("check", 5), ("train", 6), ("wake_weights", 2), ("wake_cache", 3))


def _step(factor: int) -> Step:
    spans, now = [], 0
    for name, seconds in _PARTS:
        end = now + factor * seconds * _SECOND
        spans.append(Span(name=name, start_ns=now, end_ns=end))
        now = end
    return Step(index=0, phase="measure", start_ns=0, end_ns=now, work=Work(samples=1), spans=tuple(spans))


def _view(results: Results, *steps: Step) -> RunView:
    build = Build()
    point = build.generate(1)
    manifest = replace(MANIFEST, plan=Plan(points=(point,), skips=()))
    return RunView(results=results, manifest=manifest, records=(build.record(point, (build.rank(steps),)),))


def test_the_median_step_is_drawn_without_its_checks(results: Results) -> None:
    """Steps of 20, 40 and 60 s: 40 s, of which generating takes 16 s; the train begins where the sleep ended."""
    chart = phase_chart(_view(results, _step(3), _step(1), _step(2)), {})
    assert chart is not None
    assert chart.series == ("generate", "engine_sleep", "train", "wake")
    point = chart.rows[0][0]
    assert chart.rows == (
        (point, "generate", "0 µs", "16 s", "40.0 %"),
        (point, "engine_sleep", "16 s", "2 s", "5.0 %"),
        (point, "train", "18 s", "12 s", "30.0 %"),
        (point, "wake", "30 s", "4 s", "10.0 %"),
        (point, "wake", "34 s", "6 s", "15.0 %"),
    )
    assert str(chart.drawing).count('<rect class="bar series3"') == 2


def test_the_page_has_the_chart_where_steps_have_phases(results: Results) -> None:
    """With each bar's words; a run without phases has no such section."""
    text = unescape(render(_view(results, _step(1))))
    assert "generate 8 s, 40.0 % of the step" in text
    assert 'id="phases"' in text
    without = _view(results, replace(_step(1), spans=()))
    assert phase_chart(without, {}) is None
    assert 'id="phases"' not in render(without)


def test_phases_without_time_are_not_drawn(results: Results) -> None:
    """They have no share of their step; beside other steps they count for nothing."""
    nothing = _view(results, _step(0))
    assert phase_chart(nothing, {}) is None
    assert 'id="phases"' not in render(nothing)
    beside = phase_chart(_view(results, _step(0), _step(1)), {})
    assert beside is not None
    assert beside.rows == getattr(phase_chart(_view(results, _step(1)), {}), "rows", None)
