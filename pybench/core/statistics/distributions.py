"""Distributions that verdicts need, with the standard library alone; tests hold them against scipy.

Student's t and F come from the regularised incomplete beta function, whose continued fraction is evaluated by Lentz's
method (W. Press et al., Numerical Recipes, 3rd ed., sections 5.2, 6.4).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_TINY = 1e-300
_MAX_TERMS = 1000
_QUANTILE_PRECISION = 1e-11
_PRECISION = 1e-14
_MOST_FREEDOM = 1e5
_NORMAL_FROM = 1e7
"""Degrees of freedom from which t is the normal distribution to more digits than anybody needs."""


def upper_tail(value: float, freedom: float) -> float:
    """Probability that t lies above ``value``. Raises ``ValueError`` unless ``freedom`` is above 0."""
    if not freedom > 0:
        raise ValueError(f"degrees of freedom must be above 0, found {freedom}")
    if math.isinf(value):
        return 0.0 if value > 0 else 1.0
    if freedom > _NORMAL_FROM:
        return 0.5 * math.erfc(value / math.sqrt(2))
    both = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + value * value))
    return both / 2 if value > 0 else 1 - both / 2


def variance_ratio_tail(ratio: float, freedom: float, other: float) -> float:
    """Probability that the ratio of two variances of one spread lies above ``ratio``: the F distribution."""
    other = min(other, _MOST_FREEDOM)
    return _incomplete_beta(other / 2, freedom / 2, other / (other + freedom * max(ratio, 0.0))) if ratio > 0 else 1.0


@lru_cache(maxsize=65536)
def quantile(tail: float, freedom: float) -> float:
    """The value that t exceeds with probability ``tail``, between 0 and 1."""
    if not 0 < tail < 1:
        raise ValueError(f"a tail is a probability between 0 and 1, found {tail}")
    if tail > 0.5:  # noqa: PLR2004 - the median is 0
        return -quantile(1 - tail, freedom)
    low, high = 0.0, math.inf
    value = approximate_quantile(tail, max(freedom, 1.0))
    for _ in range(_MAX_TERMS):
        beyond = upper_tail(value, freedom) - tail
        low, high = (value, high) if beyond > 0 else (low, value)
        # Newton's step, kept between the values that are known to be too low and too high.
        following = value + beyond / max(_density(value, freedom), _TINY)
        if not low < following < high:
            following = (low + high) / 2 if high < math.inf else 2 * value
        if abs(following - value) <= _QUANTILE_PRECISION * value:
            return following
        value = following
    return value


def approximate_quantile(tail: float, freedom: float) -> float:
    """The quantile to a few digits from 3 degrees of freedom on: the normal's, expanded (Abramowitz, Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(1 - tail)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def at_least(num: int, trials: int, share: float) -> float:
    """Probability of at least ``num`` successes in ``trials``, each with probability ``share`` above 0."""
    if not num or share >= 1:
        return 1.0
    terms = (
        math.lgamma(trials + 1) - math.lgamma(n + 1) - math.lgamma(trials - n + 1) + n * math.log(share)
        + (trials - n) * math.log1p(-share)
        for n in range(num, trials + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def digamma(x: float) -> float:
    """Derivative of log gamma: recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18)."""
    shifted = 0.0
    while x < 10:  # noqa: PLR2004 - from here the series has 12 digits
        shifted -= 1 / x
        x += 1
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return shifted + math.log(x) - 0.5 / x - series


def trigamma(x: float) -> float:
    """Second derivative of log gamma, likewise (Abramowitz and Stegun 6.4.12)."""
    shifted = 0.0
    while x < 10:  # noqa: PLR2004 - from here the series has 12 digits
        shifted += 1 / (x * x)
        x += 1
    square = 1 / (x * x)
    series = square / x * (1 / 6 - square * (1 / 30 - square * (1 / 42 - square * (1 / 30 - square * 5 / 66))))
    return shifted + 1 / x + square / 2 + series


def inverse_trigamma(value: float) -> float:
    """The positive x whose trigamma is ``value``; trigamma falls from infinity to 0."""
    low, high = 1e-8, 1e8
    if value >= trigamma(low):
        return low
    if value <= trigamma(high):
        return high
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)


def _density(value: float, freedom: float) -> float:
    if freedom > _NORMAL_FROM:
        return math.exp(-value * value / 2) / math.sqrt(2 * math.pi)
    log_front = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    return math.exp(log_front - (freedom + 1) / 2 * math.log1p(value * value / freedom))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function."""
    both = a + b
    c, d = 1.0, 1 / (1 - both * x / (a + 1) or _TINY)
    value = d
    for m in range(1, _MAX_TERMS):
        place = a + 2 * m
        even = m * (b - m) * x / ((place - 1) * place)
        odd = -(a + m) * (both + m) * x / (place * (place + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d or _TINY)
            c = 1 + term / c or _TINY
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value
