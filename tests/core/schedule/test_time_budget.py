"""Points of a plan that fit a time limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.core.schedule import by_likeness, in_time, pending, unknown, within
from pybench.model.manifest import PlanOptions, duration_text
from pybench.model.suite import Plan, Point
from tests.build import Build
from tests.builders import with_attempts
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.schedule.time_budget")

build = Build()


def _points(attempts: int = 2) -> tuple[Point, ...]:
    points = [build.generate(count) for count in (1, 2, 4)]
    return tuple(with_attempts(point, attempts) for point in points)


def test_points_are_left_out_once_the_time_is_spent() -> None:
    """2 attempts of 10 s, 2 of 30 s and 2 of 15 s in 60 s: 20, then 60 beyond the 40 left, then 30 within them."""
    points = _points()
    times = dict(zip((point.digest for point in points), (10.0, 30.0, 15.0), strict=True))
    plan = within(Plan(points=points, skips=()), times, 60.0)
    assert plan.points == (points[0], points[2])
    (skip,) = plan.left_out
    assert (skip.id, skip.kind, skip.lacks) == (points[1].id, "time_limit", "points beyond --time-limit 1m")
    assert skip.reason == SENTENCES["time_limit"]


def test_a_plan_that_just_fits_is_whole() -> None:
    """20 + 40 + 30 s are 90 s."""
    points = _points()
    times = dict(zip((point.digest for point in points), (10.0, 20.0, 15.0), strict=True))
    assert within(Plan(points=points, skips=()), times, 90.0) == Plan(points=points, skips=())
    assert len(within(Plan(points=points, skips=()), times, 89.0).points) == 2


def test_a_point_of_unknown_length_stays() -> None:
    """It is measured, and its first attempt shows how long the next ones take."""
    points = _points()
    plan = within(Plan(points=points, skips=()), {points[0].digest: 100.0}, 50.0)
    assert plan.points == points[1:]
    assert unknown(plan, {points[0].digest: 100.0}) == tuple(point.id for point in points[1:])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(20 * 60, "20m"), (5400, "1h30m"), (90, "90s"), (120, "2m"), (3600, "1h"), (0.2, "0s"), (3725, "1h2m5s")],
)
def test_a_time_is_written_as_it_is_read(seconds: float, text: str) -> None:
    """Hours, minutes and seconds without a space."""
    assert duration_text(seconds) == text


def test_options_are_shown_as_written() -> None:
    """So that they can be copied to another command; a profile is shown by the suite."""
    options = PlanOptions(profile="cpu", keep="a or b", settings=("x=1", "y=[1, 2]"), attempts=3, time_limit_s=60.0)
    assert options.words() == ("-k 'a or b'", "--set x=1", "--set 'y=[1, 2]'", "--attempts 3", "--time-limit 1m")
    assert PlanOptions().words() == ()


def test_of_a_round_without_time_for_all_the_longest_attempts_are_left_out() -> None:
    """Of 40, 2 and 5 s in 52 s: one round of 47, and of the next, backwards, the 5 s left hold 2. Order stays."""
    points = _points()
    times = dict(zip((point.digest for point in points), (40.0, 2.0, 5.0), strict=True))
    owed = pending(points, ())
    first, second = [(point, 1) for point in points], (points[1], 2)
    assert in_time(owed, times, 52.0) == (*first, second)
    assert in_time(owed, times, 55.0) == (*first, (points[2], 2), second)
    assert in_time(owed, times, 45.0) == (*first[1:], *reversed([(point, 2) for point in points[1:]]))


def test_an_attempt_of_unknown_length_fits_any_time_that_is_left() -> None:
    """Next to an attempt of 30 s it takes none of the remaining time."""
    points = _points(attempts=1)[:2]
    owed = pending(points, ())
    assert in_time(owed, {points[0].digest: 30.0}, 1.0) == (owed[1],)
    assert in_time(owed, {points[0].digest: 30.0}, 31.0) == owed
    assert in_time(owed, {}, 0.0) == ()


def test_a_point_takes_as_long_as_one_like_it() -> None:
    """The least of its benchmark and backend; a measured one has its own time."""
    points = _points()
    measured = {points[0].digest: 40.0, points[1].digest: 25.0}
    assert by_likeness(points, measured) == {**measured, points[2].digest: 25.0}
    assert by_likeness(points, {}) == {}
    other = replace(points[2], benchmark="engine")
    assert by_likeness((*points[:2], other), measured) == measured
