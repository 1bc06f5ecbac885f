"""Correlation of successive attempts."""

from __future__ import annotations

import numpy as np
import pytest

from pybench.core.statistics.memory import lag_correlation, variance_inflation

_RISING, _MIXED = [0.0, 1.0, 2.0], [1.0, 2.0, 0.0]


def test_points_that_all_drift_have_correlated_attempts() -> None:
    """Rising attempts in four points; three points, or attempts in another order, show nothing."""
    assert lag_correlation([_RISING] * 4)[0] > 0.5
    assert lag_correlation([_RISING] * 3)[0] == 0.0
    assert lag_correlation([_MIXED] * 40)[0] == 0.0
    assert lag_correlation([[1.0, 2.0], [3.0, 3.0, 3.0]] * 8)[0] == 0.0


def test_a_hint_counts_while_attempts_may_follow() -> None:
    """Of seven points three rise: 0.9 standard errors above chance."""
    points = [_RISING] * 3 + [_MIXED] * 2 + [[0.0, 2.0, 1.0]] * 2
    assert lag_correlation(points)[0] == 0.0
    assert lag_correlation(points, more_follow=True)[0] > 0


def test_few_points_have_the_correlation_of_other_runs() -> None:
    """Fewer than four points do not show their own."""
    assert lag_correlation([_MIXED] * 3, usual=0.6)[0] == 0.6
    assert lag_correlation([_MIXED] * 4, usual=0.6)[0] == 0.0


def test_many_attempts_of_few_points_show_their_own() -> None:
    """Ten attempts of two points, rising and mixed; nine show nothing."""
    rising, mixed = [float(n) for n in range(10)], [0.0, 5.0, 1.0, 4.0, 2.0, 0.0, 5.0, 1.0, 4.0, 2.0]
    assert lag_correlation([rising[:9]] * 3)[0] == 0.0
    assert lag_correlation([rising] * 2)[0] == 0.7
    assert lag_correlation([mixed] * 2, usual=0.6)[0] == 0.0


def test_variance_inflation_by_hand() -> None:
    """Two values that correlate by 0.5: their mean has 1.5 / 2 of the variance, their sample variance is half of it."""
    assert variance_inflation(2, 0.5) == pytest.approx(1.5 / 0.5)
    assert variance_inflation(5, 0.0) == 1.0


@pytest.mark.no_cover  # many draws of code that the tests above cover
def test_the_mean_of_correlated_attempts_scatters_as_stated() -> None:
    """20,000 series of six attempts with 0.6: their means' variance within 5 % of the inflated one."""
    random = np.random.default_rng(1)
    series = np.empty((20_000, 6))
    series[:, 0] = random.standard_normal(20_000)
    for step in range(1, 6):
        series[:, step] = 0.6 * series[:, step - 1] + 0.8 * random.standard_normal(20_000)
    stated = series.var(axis=1, ddof=1).mean() / 6 * variance_inflation(6, 0.6)
    assert series.mean(axis=1).var() == pytest.approx(stated, rel=0.05)
