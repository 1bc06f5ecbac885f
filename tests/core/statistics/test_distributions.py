"""Distributions against scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # loads its parts when they are used

from pybench.core.statistics.distributions import (
    approximate_quantile,
    at_least,
    digamma,
    inverse_trigamma,
    quantile,
    trigamma,
    upper_tail,
    variance_ratio_tail,
)

FREEDOMS = (1.0, 1.37, 2.0, 3.99, 17.2, 1e5, 1e9)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_tails_and_quantiles_of_t(freedom: float) -> None:
    """Fractions of degrees of freedom too, as Satterthwaite's are; below the median by symmetry."""
    for value in (-3.0, -0.5, 0.0, 0.1, 1.0, 20.0):
        assert upper_tail(value, freedom) == pytest.approx(scipy.stats.t.sf(value, freedom), rel=1e-8, abs=1e-80)
    for tail in (0.9, 0.4, 0.025, 1e-3, 1e-8):
        assert quantile(tail, freedom) == pytest.approx(scipy.stats.t.isf(tail, freedom), rel=1e-6)


def test_the_approximate_quantile_is_within_7_per_cent() -> None:
    """From three degrees of freedom on."""
    for freedom in (3, 4, 10, 100):
        assert approximate_quantile(0.0126, freedom) == pytest.approx(scipy.stats.t.isf(0.0126, freedom), rel=0.07)


@pytest.mark.parametrize(("freedom", "other"), [(2, 10), (1, 1), (1, 1e5), (2.5, 7.5), (30, 4)])
def test_a_ratio_of_variances(freedom: float, other: float) -> None:
    """The upper tail of F."""
    for ratio in (0.0, 0.3, 1.0, 4.1, 160.0):
        assert variance_ratio_tail(ratio, freedom, other) == pytest.approx(
            scipy.stats.f.sf(ratio, freedom, other), rel=1e-8, abs=1e-80
        )


def test_binomial_tails() -> None:
    """Random shares and numbers of trials, many of them, and a share of 1."""
    random = np.random.default_rng(1)
    for trials in (1, 6, 40, 10_000):
        num, share = int(random.integers(0, trials + 1)), float(random.uniform(0.01, 0.99))
        assert at_least(num, trials, share) == pytest.approx(scipy.stats.binom.sf(num - 1, trials, share), rel=1e-8)
    assert at_least(2, 3, 1.0) == 1.0


@pytest.mark.parametrize("value", [0.01, 0.5, 1.0, 3.0, 9.99, 80.0])
def test_gamma_functions(value: float) -> None:
    """Digamma, trigamma and its inverse."""
    assert digamma(value) == pytest.approx(scipy.special.digamma(value), rel=1e-9)
    assert trigamma(value) == pytest.approx(scipy.special.polygamma(1, value), rel=1e-9)
    assert inverse_trigamma(trigamma(value)) == pytest.approx(value, rel=1e-9)


def test_what_is_no_probability_is_refused() -> None:
    """And no degrees of freedom."""
    with pytest.raises(ValueError, match="a tail is a probability"):
        quantile(0.0, 3)
    with pytest.raises(ValueError, match="must be above 0"):
        upper_tail(1.0, 0)
    assert (upper_tail(math.inf, 3), upper_tail(-math.inf, 3)) == (0.0, 1.0)
