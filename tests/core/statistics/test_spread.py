"""The spread that points have in common, and the point that has no part in it."""

from __future__ import annotations

import math

import pytest

from pybench.core.statistics.contrast import contrast
from pybench.core.statistics.spread import (
    common_spread,
    pooled,
    pooled_variance,
    pulled_in,
    second_speed,
)
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.statistics.spread")

_QUIET = [[0.0, 0.001 * (1 + 0.1 * place), -0.002] for place in range(9)]
_NOISY = [0.0, 0.03, -0.02]


def test_a_point_that_scatters_more_than_chance_is_judged_by_its_own_spread() -> None:
    """A point with ten times the others' spread does not change theirs, and keeps its own."""
    alone, beside = common_spread(_QUIET), common_spread([*_QUIET, _NOISY])
    assert alone is not None
    assert beside is not None
    assert (beside.variance, beside.freedom) == pytest.approx((alone.variance, alone.freedom))
    assert beside.num_points == 10
    own, freedom = beside.moderated(0.025**2, 2)
    assert (own, freedom) == (0.025**2, 2)
    found = contrast([_NOISY], spread=beside)
    assert found is not None
    assert found.freedom == 2


def test_points_alike_share_all_of_it() -> None:
    """With nine quiet points, twice their variance is chance: shrunk, with more than its two degrees of freedom."""
    spread = common_spread(_QUIET)
    assert spread is not None
    variance, freedom = spread.moderated(2 * spread.variance, 2)
    assert variance < 2 * spread.variance
    assert freedom > 2
    assert math.isfinite(freedom)


def test_a_pooled_variance_is_weighted_by_degrees_of_freedom() -> None:
    """2 of 1 and 8 of 3 are 26 / 4. 0, 2 has variance 2 and 5, 5, 8 has 3: 8 / 3; a single value has none."""
    assert pooled([(2.0, 1), (8.0, 3)]) == (6.5, 4)
    assert pooled([]) == (0.0, 0)
    assert pooled_variance([[0.0, 2.0], [9.0], [5.0, 5.0, 8.0]]) == pytest.approx((8 / 3, 3))


def test_a_moderated_variance_lies_between_its_own_and_the_common_one() -> None:
    """4 of 2 degrees, shrunk towards 1 of 6: 14 / 8; towards one of no degrees it stays."""
    assert pooled([(1.0, 6.0), (4.0, 2)]) == (1.75, 8)
    assert pooled([(0.0, 0.0), (4.0, 2)]) == (4.0, 2)


@pytest.mark.parametrize(("least_sd", "reach"), [(0.0, 3 * 1.4826 * 1.25), (2.0, 6.0)])
def test_values_far_off_are_pulled_in(least_sd: float, reach: float) -> None:
    """Five about 0, whose median deviation is 1: at most 3 standard deviations of 1.25 * 1.4826, or of the least."""
    values = [-1.0, 0.0, 0.0, 1.0, 50.0]
    assert pulled_in(values, least_sd) == pytest.approx([-1.0, 0.0, 0.0, 1.0, reach])


def test_a_bad_attempt_is_pulled_in_and_a_second_speed_is_not() -> None:
    """One of 30 attempts 5 % slower is bad; six of 30, 3 % slower, are a second speed."""
    points = [[0.001, -0.002, 0.0] for _ in range(10)]
    bad, two = [[0.001, -0.05, 0.0], *points[1:]], [[0.0, -0.03, 0.001]] * 6 + points[6:]
    spread = common_spread(bad)
    assert spread is not None
    assert (spread.second_speed, spread.notes) == (None, ())
    assert spread.pulled_in(bad[0])[1] > -0.02
    speeds, spread = second_speed(two), common_spread(two)
    assert spread is not None
    assert spread.second_speed == speeds
    assert speeds is not None
    assert (speeds.num_far, speeds.num_attempts, str(speeds)) == (
        6,
        30,
        SENTENCES["a_bad_attempt_is_pulled_in_and_a"],
    )
    assert spread.pulled_in(two[0]) == two[0]
    quiet = spread.moderated(1e-8, 2)
    assert spread.widened(*quiet, 3) == spread.pooled
    assert spread.pooled[0] == pytest.approx(2e-4, rel=0.2)


def test_few_points_share_no_variance_and_show_no_second_speed() -> None:
    """Seven points: each is judged by its own spread, and nothing is pulled in."""
    points = [[0.0, 0.001, -0.05]] * 7
    spread = common_spread(points)
    assert spread is not None
    assert (spread.num_points, spread.moderated(4.0, 2), second_speed(points)) == (0, (4.0, 2), None)
    assert spread.pulled_in(points[0]) == points[0]
    assert common_spread([[1.0]]) is None
