"""Pages of a history and of one command."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from pybench.model.figures import PointFigures
from pybench.nightly.history import History, series_of
from pybench.nightly.history_page import render as history_of
from pybench.nightly.values import Accepted
from tests.report.conftest import HOSTILE
from tests.report.page_run import SECOND, power_trace
from tests.report.pages import PageReader, command_page, history_page
from tests.runs_against_runs import nights


def test_a_history_has_a_trend_for_every_row() -> None:
    """Four rows; a line does not bridge a night that has no value, and the last night is a square where it has one."""
    text = history_page()
    shown = unescape(text)
    assert text.count("<polyline") == 3 + 2
    assert text.count('class="mark series1"') == 3
    assert text.count('<polygon class="band"') == 4
    for words in ("30 runs, 2026-10-01 to 2026-10-30", "29 of 30", "not measured", "skipped: x.json: cut short"):
        assert words in shown


def test_an_epoch_begins_where_something_changed() -> None:
    """A line in each chart, and what changed on which night."""
    assert "Epochs" not in history_page()
    shown = unescape(history_page(driver='"581"'))
    assert shown.count('class="linear"') == 4
    assert "2026-10-30: driver: 580.1 -> 581" in shown


def test_an_accepted_change_has_its_line_and_its_reason() -> None:
    """Only the charts of its rows have the line; a date after the last night has none."""
    of_one = Accepted(
        point="decode[tensor_parallel=2]", metric="output_tokens_per_s", since="2026-10-20", reason="agreed"
    )
    of_all = Accepted(point="decode[tensor_parallel=1]", since="2026-10-10", reason=HOSTILE)
    to_come = Accepted(point="decode[tensor_parallel=1]", since="2027-01-01", reason="planned")
    text = history_page(accepted=(of_one, of_all, to_come))
    assert text.count('class="accepted"') == 3
    shown = unescape(text)
    assert "2026-10-20: accepted: agreed" in shown
    assert "planned" in shown
    assert "\u202e" not in text


def test_an_accepted_host_is_one_line_of_the_table() -> None:
    """And a line in the chart of each of its rows. What another suite or machine accepts is not of this page."""
    of_suite = Accepted(suite="s", gpu="GPU-0", since="2026-10-20", reason="a new power supply")
    others = replace(of_suite, suite="other", reason="elsewhere"), replace(of_suite, gpu="GPU-1", reason="elsewhere")
    shown = unescape(history_page(accepted=(of_suite, *others)))
    assert shown.count('class="accepted"') == shown.count("2026-10-20: accepted: a new power supply") == 4
    assert shown.count(">a new power supply<") == 1
    assert "<td>all</td><td>all</td><td>a new power supply</td>" in shown
    assert "elsewhere" not in shown


def test_a_change_of_level_is_dated() -> None:
    """By the change-point test: ten nights after it, with the 95 % limits of its night."""
    runs = [
        replace(one, points=tuple(_times(point, 0.9) for point in one.points)) if night >= 20 else one
        for night, one in enumerate(nights(30))
    ]
    found = History(folder=Path("runs"), runs=tuple(runs), skipped=())
    text = unescape(history_of(found, series_of(runs, runs[-1])))
    assert text.count('class="level"') == 2
    assert "2026-10-21: level changed by -" in text
    assert "Changes of level" in text


def _times(point: PointFigures, factor: float) -> PointFigures:
    speed = tuple(factor * value for value in point.medians["output_tokens_per_s"])
    return replace(point, medians={**point.medians, "output_tokens_per_s": speed})


@pytest.mark.parametrize("num", [1, 2, 3])
def test_a_short_history_is_drawn(num: int) -> None:
    """Without a band where the spread is not known."""
    text = history_page(num)
    assert f"{num} run" in text
    assert "NaN" not in text
    assert "inf" not in text.partition("<main")[2].partition("<script")[0]


def test_a_command_has_its_joules() -> None:
    """The total, each GPU, what each flag means, how the command ended."""
    shown = unescape(command_page(power_trace(4, 600), 2 * SECOND, 11 * SECOND))
    for words in ("14406 J", "train --fast", "exit code 3", "[3550, 3660] J", "no RAPL here", "uncalibrated"):
        assert words in shown
    assert "pybench has not measured the power sensor" in shown


@pytest.mark.parametrize("make", ["command", "history"])
def test_hostile_text_stays_text(make: str) -> None:
    """Reasons, command lines and notes make no element."""
    pages = {
        "command": lambda: command_page(power_trace(1, 100), 2 * SECOND, 11 * SECOND, (HOSTILE,)),
        "history": lambda: history_page(5, HOSTILE),
    }
    harmless = {
        "command": lambda: command_page(power_trace(1, 100), 2 * SECOND, 11 * SECOND, ("x",)),
        "history": lambda: history_page(5, "x"),
    }
    text = pages[make]()
    tags = [[tag for tag, _ in PageReader(page).tags if tag != "br"] for page in (text, harmless[make]())]
    assert tags[0] == tags[1]
    assert all(char.isprintable() or char == "\n" for char in text)
