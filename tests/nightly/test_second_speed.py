"""Attempts of two speeds: whether a night's may be drawn from those of earlier nights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.nightly.gate import judge_night
from pybench.nightly.night_look import SECOND_SPEED, is_second_speed
from tests.nights import Fleet, Slower

FAR = 0.047
Night = tuple[float, ...]
# One attempt in six is far off, so that two of three are on one night in 14, all three on one in 216.
LEVEL: list[Night] = [(0.0, 0.001, -FAR), (0.002, 0.0, 0.001)] * 10
QUIET = Fleet(night_sds=(0.005, 0.005), bad_attempts=0.0, bad_nights=0.0)


@pytest.mark.parametrize(
    ("nights", "deviation", "is_second"),
    [
        ([(-FAR, 0.0, -FAR)], -FAR, True),
        ([(-FAR, -FAR, -FAR)], -FAR, True),
        ([(0.01 - FAR, 0.01, 0.01 - FAR)], 0.01 - FAR, True),  # a night on which all attempts are faster
        ([(-FAR, -FAR, -FAR), (-FAR, -FAR, -FAR)], -FAR, False),  # one in 46,656
        ([(0.0, -FAR, -FAR), (-FAR, -FAR, -FAR)], -FAR, False),  # five of six: one in 1,500
        ([(0.0, -FAR, -FAR), (-FAR, -FAR, 0.0)], -FAR, True),  # four of six: one in 115
        ([(-2 * FAR, 0.0, -2 * FAR)], -2 * FAR, False),  # no attempt was as far off
        ([(-FAR, -FAR)], -FAR, False),
        ([(), (-FAR, 0.0, -FAR)], -FAR, False),
    ],
)
def test_a_night_is_as_likely_as_its_attempts(nights: list[Night], deviation: float, is_second: bool) -> None:
    """At most one in a thousand shows a change. The same where more is better and where less is."""
    assert is_second_speed(nights, LEVEL, 0.0, deviation) is is_second
    turned, level = ([[-value for value in night] for night in group] for group in (nights, LEVEL))
    assert is_second_speed(turned, level, 0.0, -deviation) is is_second


@pytest.mark.parametrize(
    "level",
    [
        [],
        [(0.0,), (-FAR,)] * 15,
        [(0.0, 0.001, 0.002)] * 30,
        [(0.0, 0.001, -FAR), *[(0.0, 0.001, 0.002)] * 7],  # one bad attempt
        [(FAR, 0.001, 0.0)] * 30,  # the rarer speed is the faster one
    ],
)
def test_without_earlier_attempts_of_that_speed_it_is_a_change(level: list[Night]) -> None:
    """A second speed needs an attempt as far from its night's median, in two nights of three attempts or more."""
    assert not is_second_speed([(-FAR, 0.0, -FAR)], level, 0.0, -FAR)


def test_a_row_of_two_speeds_has_fewer_false_alarms() -> None:
    """50 quiet nights, a second speed on one attempt in five: at most 1 alarm, where medians alone have 3."""
    random = np.random.default_rng(1)
    fleet = replace(QUIET, second_speed=(0.2, FAR), num_points=8)
    results = [judge_night(fleet.series(random, 30)) for _ in range(50)]
    assert sum(result.state == "regressed" for result in results) <= 1
    held = {row.row.point_id for result in results for row in result.rows if row.reason == SECOND_SPEED}
    assert held == {"p0"}


@pytest.mark.parametrize(
    ("second_speed", "step", "num_nights", "least"),
    [((0.2, -0.031), 0.031, 3, 19), ((0.2, FAR), FAR, 3, 19), ((0.0, 0.0), 0.03, 1, 18)],
)
def test_a_change_is_found(second_speed: tuple[float, float], step: float, num_nights: int, least: int) -> None:
    """Nearly all of 20 are found on the first night, or on the third with one attempt in five at the other speed."""

    def slower(point: int, night: int) -> float:
        return step * (point == 0 and night >= 30)

    assert _num_found(replace(QUIET, second_speed=second_speed), slower, num_nights) >= least


def test_a_change_is_found_where_attempts_scatter_more_than_nights() -> None:
    """Attempts spread by 1 %: the second night finds most of 20 changes of 3 %, as medians alone do."""
    fleet = replace(QUIET, night_sds=(0.003, 0.003), attempt_sd=0.01)
    assert _num_found(fleet, lambda point, night: 0.03 * (point == 0 and night >= 30), 2) >= 17


def _num_found(fleet: Fleet, slower: Slower, num_nights: int) -> int:
    changed = replace(fleet, slower=slower, num_points=8)
    results = [judge_night(changed.series(np.random.default_rng(trial), 29 + num_nights)) for trial in range(20)]
    return sum(any(row.state == "regressed" and row.row.point_id == "p0" for row in one.rows) for one in results)
