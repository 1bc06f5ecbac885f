"""The spread between attempts that a run's points have in common: what one point's few attempts lack.

Variances of points are shrunk towards a common one as in limma's moderated t (G. Smyth, Statistical Applications in
Genetics and Molecular Biology 3(1), 2004, section 6.2). Attempts far off their point's median are pulled in, so that
one bad attempt does not hide what the others show. A point that scatters more than the others, beyond chance, has no
part in it: it is judged by its own spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles

from pybench.core.statistics.student_t import variance_ratio_tail

MIN_POINTS = 8
"""With fewer points their common spread is known no better than a point's own."""

LEAST_SD = 0.001
"""Of logarithms: figures that are steadier, such as memory, are judged as if they scattered by 0.1 %."""
SD_OF_MAD = 1.4826
"""Standard deviation of normal values over their median absolute deviation: 1 / quantile of 3/4."""
_ROBUST_SDS = 3.0
# A few values' median deviation is less, on average, than that of many (P. Rousseeuw, C. Croux 1993): by simulation.
_FEW = {2: 1.2, 3: 1.6, 4: 1.35, 5: 1.25, 6: 1.2}
_COMMON_QUANTILE = 0.8
# A point without any spread would make the logarithm of its variance infinite.
_LEAST_VARIANCE = 1e-5
_MAX_FREEDOM = 1e6
_NOISY = 0.01
"""Level at which a point is taken to scatter more than the others. A higher one would cost healthy points with a bad
attempt their verdict (``tests/benchmarks/test_verdict_errors.py``)."""
_FEWEST_ALIKE = 4

Variance = tuple[float, float]
"""A variance and its degrees of freedom."""


@dataclass(frozen=True)
class Spread:
    """``variance`` has ``freedom`` degrees of freedom; ``robust_sd`` is that of a rather noisy point; of logarithms."""

    variance: float
    freedom: float
    robust_sd: float
    num_points: int

    def pulled_in(self, values: Sequence[float]) -> list[float]:
        """The values of one point, none farther from their median than 3 robust standard deviations."""
        return pulled_in(values, self.robust_sd)

    def moderated(self, variance: float, freedom: float) -> Variance:
        """A point's own variance by :func:`moderated_variance`; one that stands out stays as it is."""
        if self.variance > 0 and _stands_out(variance / self.variance, freedom, self.freedom, _NOISY):
            return variance, freedom
        return moderated_variance((variance, freedom), (self.variance, self.freedom))


def common_spread(points: Sequence[Sequence[float]]) -> Spread | None:
    """Spread of the points' values, each with two or more; ``None`` of fewer than ``MIN_POINTS``, or without any."""
    several = [values for values in points if len(values) > 1]
    if len(several) < MIN_POINTS:
        return None
    sds = [robust_sd(values) for values in several]
    robust = quantiles(sds, n=100, method="inclusive")[round(100 * _COMMON_QUANTILE) - 1]
    first = Spread(variance=0.0, freedom=0.0, robust_sd=robust, num_points=len(several))
    pulled = [first.pulled_in(values) for values in several]
    freedoms = [len(values) - 1 for values in pulled]
    variances = [variance_of(values) for values in pulled]
    positive = [value for value in variances if value > 0]
    if not positive:
        return None
    least = _LEAST_VARIANCE * median(positive)
    variance, freedom = _prior_of_alike([max(value, least) for value in variances], freedoms)
    return Spread(variance=variance, freedom=freedom, robust_sd=robust, num_points=len(several))


def _prior_of_alike(variances: Sequence[float], freedoms: Sequence[float]) -> Variance:
    """The prior of the points that are left when those that scatter more than the others are taken out, worst first."""
    alike = sorted(zip(variances, freedoms, strict=True))
    found = prior(*zip(*alike, strict=True))
    while len(alike) > _FEWEST_ALIKE:
        (worst, freedom), others = alike[-1], alike[:-1]
        following = prior(*zip(*others, strict=True))
        if not _stands_out(worst / following[0], freedom, following[1], _NOISY / len(alike)):
            break
        alike, found = others, following
    return found


def _stands_out(ratio: float, freedom: float, common_freedom: float, level: float) -> bool:
    return ratio > 1 and variance_ratio_tail(ratio, freedom, common_freedom) < level


def mean_and_variance(values: Sequence[float]) -> tuple[float, float]:
    """Of two values or more; of equal ones exactly their value, and 0."""
    first = values[0]
    offsets = [value - first for value in values]
    mean = fmean(offsets)
    return first + mean, sum([(offset - mean) ** 2 for offset in offsets]) / (len(values) - 1)


def variance_of(values: Sequence[float]) -> float:
    """Of two values or more; exactly 0 of equal ones."""
    return mean_and_variance(values)[1]


def pooled_variance(levels: Iterable[Sequence[float]]) -> Variance:
    """Variance about each level's own mean; without any, 0 and 0."""
    return pooled([(variance_of(level), len(level) - 1) for level in levels if len(level) > 1])


def pooled(variances: Sequence[Variance]) -> Variance:
    """One variance of several: their mean, weighted by their degrees of freedom; without any, 0 and 0."""
    total = sum(freedom for _, freedom in variances)
    return (sum(freedom * variance for variance, freedom in variances) / total if total else 0.0), total


def moderated_variance(own: Variance, common: Variance) -> Variance:
    """A variance shrunk towards a common one (:func:`prior`): limma's, Smyth 2004, sections 3 and 4."""
    return pooled([common, own])


def pulled_in(values: Sequence[float], least_sd: float = LEAST_SD) -> list[float]:
    """Values, none farther from their median than 3 robust standard deviations, each at least ``least_sd``."""
    centre, reach = median(values), _ROBUST_SDS * max(robust_sd(values), least_sd)
    return [min(max(value, centre - reach), centre + reach) for value in values]


def robust_sd(values: Sequence[float]) -> float:
    """The median deviation from the median, scaled to a standard deviation of normal values."""
    centre = median(values)
    deviation = median(abs(value - centre) for value in values)
    return SD_OF_MAD * deviation * _FEW.get(len(values), 1.15)


def prior(variances: Sequence[float], freedoms: Sequence[float]) -> Variance:
    """Variance and degrees of freedom of the scaled inverse chi-squared that the variances come from, by moments."""
    logs = [
        math.log(variance) - digamma(freedom / 2) + math.log(freedom / 2)
        for variance, freedom in zip(variances, freedoms, strict=True)
    ]
    mean = fmean(logs)
    beyond_chance = variance_of(logs) - fmean(trigamma(freedom / 2) for freedom in freedoms)
    if beyond_chance <= 0:
        return math.exp(mean), _MAX_FREEDOM
    freedom = min(_MAX_FREEDOM, 2 * inverse_trigamma(beyond_chance))
    return math.exp(mean + digamma(freedom / 2) - math.log(freedom / 2)), freedom


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
