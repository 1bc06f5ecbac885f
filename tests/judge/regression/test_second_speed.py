"""Attempts of two speeds: whether a night's may be drawn from those of earlier nights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.judge.regression.gate import judge_night
from pybench.judge.regression.second_speed import SECOND_SPEED, is_second_speed
from tests.nights import Fleet

SLOW = -0.047
# One attempt in six is slow, so that two of three are on one night in 14, all three on one in 216.
LEVEL = [(0.0, 0.001, SLOW), (0.002, 0.0, 0.001)] * 10
QUIET = Fleet(night_sds=(0.005, 0.005), bad_attempts=0.0, bad_nights=0.0)


@pytest.mark.parametrize(
    ("nights", "is_second"),
    [
        ([(SLOW, 0.0, SLOW)], True),
        ([(SLOW, SLOW, SLOW)], True),
        ([(SLOW + 0.01, 0.01, SLOW + 0.01)], True),  # a night on which all attempts are faster
        ([(SLOW, SLOW, SLOW), (SLOW, SLOW, SLOW)], False),  # one in 46,656
        ([(0.0, SLOW, SLOW), (SLOW, SLOW, SLOW)], False),  # one in 2,900
        ([(2 * SLOW, 0.0, 2 * SLOW)], False),  # no attempt was as slow
        ([(SLOW, 0.0, SLOW), (0.0, 0.001, 0.0)], True),
        ([(), (SLOW, 0.0, SLOW)], True),
    ],
)
def test_a_night_is_as_likely_as_its_attempts(nights: list[tuple[float, ...]], is_second: bool) -> None:
    """At most one in a thousand shows a change. The same where more is better and where less is."""
    assert is_second_speed(nights, LEVEL, 0.0, worse=True) is is_second
    turned = [[-value for value in night] for night in nights]
    assert is_second_speed(turned, [[-value for value in night] for night in LEVEL], 0.0, worse=False) is is_second


@pytest.mark.parametrize("level", [[], [(0.0,)] * 30, [(0.0, 0.001, 0.002)] * 30])
def test_without_earlier_attempts_of_that_speed_it_is_a_change(level: list[tuple[float, ...]]) -> None:
    """Also where single attempts show no distance."""
    assert not is_second_speed([(SLOW, 0.0, SLOW)], level, 0.0, worse=True)


def test_a_row_of_two_speeds_has_fewer_false_alarms() -> None:
    """100 quiet nights, a second speed on one attempt in five: 2 alarms, where medians alone have 10."""
    random = np.random.default_rng(1)
    results = [judge_night(replace(QUIET, second_speed=0.2).series(random, 30)) for _ in range(100)]
    assert sum(result.state == "regressed" for result in results) <= 5
    held = {row.row.point_id for result in results for row in result.rows if row.reason == SECOND_SPEED}
    assert held == {"p0"}


def test_a_row_of_two_speeds_that_became_slow_is_found_by_its_second_night() -> None:
    """All its attempts are slower by as much as the second speed, from one night on."""
    found = []
    for trial in range(20):
        fleet = replace(QUIET, second_speed=0.2, slower=lambda point, night: 0.047 * (point == 0 and night >= 30))
        series = fleet.series(np.random.default_rng(trial), 31)
        result = judge_night(series)
        found.append("p0" in {row.row.point_id for row in result.rows if row.state == "regressed"})
    assert sum(found) >= 19
