"""Student's t distribution for any positive number of degrees of freedom, by the regularised incomplete beta function.

The continued fraction is evaluated by Lentz's method (W. Press et al., Numerical Recipes, 3rd ed., sections 5.2, 6.4).
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_MAX_TERMS = 1000
_PRECISION = 1e-15
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


@lru_cache(maxsize=65536)
def quantile(tail: float, freedom: float) -> float:
    """The value that t exceeds with probability ``tail``, between 0 and 1."""
    if not 0 < tail < 1:
        raise ValueError(f"a tail is a probability between 0 and 1, found {tail}")
    if tail > 0.5:  # noqa: PLR2004 - the median is 0
        return -quantile(1 - tail, freedom)
    low, high = 0.0, 2.0
    while upper_tail(high, freedom) > tail:
        low, high = high, high * 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if upper_tail(middle, freedom) > tail else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function."""
    c, d = 1.0, 1 / _off_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _off_zero(1 + term * d)
            c = _off_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
