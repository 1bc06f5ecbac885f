"""Student's t against printed tables and closed forms."""

from __future__ import annotations

import math

import pytest

from pybench.core.statistics.distributions import (
    approximate_quantile,
    at_least,
    quantile,
    upper_tail,
    variance_ratio_tail,
)

# Upper quantiles for tails of 5, 2.5, 1 and 0.05 %: any statistics textbook.
TABLE = {
    1: (6.314, 12.706, 31.821, 636.619),
    2: (2.920, 4.303, 6.965, 31.599),
    3: (2.353, 3.182, 4.541, 12.924),
    4: (2.132, 2.776, 3.747, 8.610),
    5: (2.015, 2.571, 3.365, 6.869),
    10: (1.812, 2.228, 2.764, 4.587),
    30: (1.697, 2.042, 2.457, 3.646),
    120: (1.658, 1.980, 2.358, 3.373),
}


@pytest.mark.parametrize("freedom", TABLE)
def test_printed_quantiles(freedom: int) -> None:
    """To the three digits that are printed."""
    for tail, expected in zip((0.05, 0.025, 0.01, 0.0005), TABLE[freedom], strict=True):
        assert quantile(tail, freedom) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize("value", [-3.0, -0.5, 0.0, 0.1, 1.0, 40.0])
def test_closed_forms(value: float) -> None:
    """One degree of freedom is Cauchy's distribution, two have a root, very many are the normal's."""
    assert upper_tail(value, 1) == pytest.approx(0.5 - math.atan(value) / math.pi, rel=1e-10)
    assert upper_tail(value, 2) == pytest.approx(0.5 - value / 2 / math.sqrt(2 + value * value), rel=1e-8)
    assert upper_tail(value, 1e9) == pytest.approx(math.erfc(value / math.sqrt(2)) / 2, rel=1e-10)


@pytest.mark.parametrize("freedom", [1.0, 1.37, 2.5, 3.99, 17.2, 1e5])
@pytest.mark.parametrize("tail", [0.4, 0.025, 1e-3, 1e-8])
def test_a_quantile_is_exceeded_as_often_as_it_says(tail: float, freedom: float) -> None:
    """For fractions of degrees of freedom, as Satterthwaite's are; below the median by symmetry."""
    assert upper_tail(quantile(tail, freedom), freedom) == pytest.approx(tail, rel=1e-7)
    assert quantile(1 - tail, freedom) == pytest.approx(-quantile(tail, freedom))


def test_the_approximation_is_near() -> None:
    """Within 7 % from three degrees of freedom on."""
    for freedom in (3, 4, 10, 100):
        assert approximate_quantile(0.0126, freedom) == pytest.approx(quantile(0.0126, freedom), rel=0.07)


@pytest.mark.parametrize(
    ("ratio", "freedom", "other", "tail"),
    [(4.10282, 2, 10, 0.05), (161.448, 1, 1, 0.05), (6.63490, 1, 1e9, 0.01), (9.0, 2, 2, 0.1), (0.0, 2, 2, 1.0)],
)
def test_a_ratio_of_variances(ratio: float, freedom: float, other: float, tail: float) -> None:
    """Tabulated quantiles of F; with two and two degrees of freedom it is 1 / (1 + ratio)."""
    assert variance_ratio_tail(ratio, freedom, other) == pytest.approx(tail, rel=5e-4)


def test_what_is_no_probability_is_refused() -> None:
    """And no degrees of freedom."""
    with pytest.raises(ValueError, match="a tail is a probability"):
        quantile(0.0, 3)
    with pytest.raises(ValueError, match="must be above 0"):
        upper_tail(1.0, 0)
    assert (upper_tail(math.inf, 3), upper_tail(-math.inf, 3)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("num", "trials", "share", "expected"),
    [(0, 3, 0.2, 1.0), (2, 3, 0.5, 0.5), (3, 3, 1 / 6, 1 / 216), (4, 6, 1 / 6, 406 / 6**6), (2, 3, 1.0, 1.0)],
)
def test_a_binomial_tail_by_hand(num: int, trials: int, share: float, expected: float) -> None:
    """Of four or more of six: 15 * 25 + 6 * 5 + 1 of 6 to the sixth."""
    assert at_least(num, trials, share) == pytest.approx(expected, rel=1e-12)


def test_many_trials_do_not_overflow() -> None:
    """Half of 10,000."""
    assert at_least(5000, 10_000, 0.5) == pytest.approx(0.504, abs=0.001)
