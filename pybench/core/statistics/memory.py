"""Whether attempts resemble the ones before them, and how much less their mean is known for it.

Drift, warm-up or a slow state that lasts correlate successive attempts, so that their variance understates the error of
their mean. The correlation is estimated over all points of a metric together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import fmean

_LEAST_ATTEMPTS = 3
"""Two attempts have the same lag-1 correlation, -0.5, whatever they are."""
_CLEAR, _HINT = 1.28, 0.5
"""Standard errors above chance from which a correlation counts: 10 % of independent runs reach the first. The second
holds while more attempts may follow, since they settle a doubt that costs a verdict only then."""
_UPPER = 1.2
"""Standard errors added to a correlation that counts: an underestimate would state too short an interval."""
_CORRELATIONS = tuple(step / 50 for step in range(36))
"""Grid of AR(1) correlations, 0 to 0.7; few attempts resolve nothing higher."""
_LEAST_POINTS = 4
"""Fewer points show a correlation of 0.6 in one run of five, and their chance costs as many verdicts."""
ATTEMPTS_OF_FEW = 10
"""Attempts from which fewer points show it, too (tests/benchmarks/test_verdict_errors.py)."""
UNSEEN = 0.6
"""Correlation that a verdict must also hold by while attempts are too few to show theirs."""


def lag_correlation(
    points: Sequence[Sequence[float]], *, more_follow: bool = False, usual: float = 0.0
) -> tuple[float, float]:
    """Correlation of successive attempts, 0 to 0.7: one that counts, 0 unless it is beyond chance; the likeliest one.

    ``points`` are attempts in the order of measuring. ``more_follow``: attempts may be added to these. ``usual`` is the
    correlation that other runs of the metric have, for points too few to show their own.
    """
    products, variance, lengths = 0.0, 0.0, Counter[int]()
    for values in points:
        centre = fmean(values)
        offsets = [value - centre for value in values]
        square = math.fsum([offset * offset for offset in offsets])
        if len(values) >= _LEAST_ATTEMPTS and square > 0:
            products += math.fsum([a * b for a, b in pairwise(offsets)]) / square
            n = len(values)
            # Of independent normal values (J.-M. Dufour, R. Roy, J. Econometrics 29, 1985).
            variance += (n**4 - 4 * n**3 + 3 * n**2 + 4 * n - 4) / ((n + 1) * n**2 * (n - 1) ** 2)
            lengths[n] += 1
    if sum(lengths.values()) < _LEAST_POINTS and max(lengths, default=0) < ATTEMPTS_OF_FEW:
        return usual, usual
    error = math.sqrt(variance)
    upper, likely = (
        next((rho for rho in _CORRELATIONS if _expected_sum(lengths, rho) >= level), _CORRELATIONS[-1])
        for level in (products + _UPPER * error, products)
    )
    is_chance = products - _expected_sum(lengths, 0.0) < (_HINT if more_follow else _CLEAR) * error
    return 0.0 if is_chance else upper, likely


def variance_inflation(num_attempts: int, correlation: float) -> float:
    """True variance of the mean of so many AR(1) values over their sample variance / n; 1 if independent."""
    if not correlation:
        return 1.0
    lags = sum_of_lags(num_attempts, correlation)
    return lags * (num_attempts - 1) / (num_attempts - lags)


def sum_of_lags(num: int, correlation: float) -> float:
    """Variance of the mean of ``num`` AR(1) values, as a multiple of the variance for independent values."""
    if not correlation:
        return 1.0
    return 1 + 2 * math.fsum((1 - lag / num) * correlation**lag for lag in range(1, num))


def _expected_sum(lengths: Counter[int], correlation: float) -> float:
    return sum(count * _expected(length, correlation) for length, count in lengths.items())


@lru_cache(maxsize=4096)
def _expected(num: int, correlation: float) -> float:
    """Lag-1 product sum over square sum of ``num`` AR(1) values about their mean, as a ratio of expectations."""
    power = [correlation**lag for lag in range(num)]
    rows = [fmean(power[abs(i - j)] for j in range(num)) for i in range(num)]
    whole = fmean(rows)
    products = math.fsum(correlation - rows[i] - rows[i + 1] + whole for i in range(num - 1))
    return products / math.fsum(1 - 2 * row + whole for row in rows)
