"""The spread between attempts that a run's points have in common: what one point's few attempts lack.

Variances of points are shrunk towards a common one as in limma's moderated t (G. Smyth, Statistical Applications in
Genetics and Molecular Biology 3(1), 2004, section 6.2). Some attempts are bad: outliers from their point's median are
pulled in, so that they do not hide the others. Where many are far off, attempts have two speeds (:func:`second_speed`):
nothing is pulled in, and every point counts as scattering as all of them do together. A point that scatters more than
the others, beyond chance, is judged by its own spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, quantiles

from pybench.core.statistics.distributions import digamma, inverse_trigamma, trigamma, variance_ratio_tail
from pybench.core.statistics.memory import ATTEMPTS_OF_FEW, UNSEEN, lag_correlation, variance_inflation

MIN_POINTS = 8
"""With fewer points their common spread is known no better than a point's own."""

LEAST_SD = 0.001
"""In logarithms: steadier figures, such as memory, are judged as if they scattered by 0.1 %."""
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
_BAD_SHARE = 0.06
"""Largest share of outliers that counts as bad attempts (2 % in normal runs); more are two speeds."""

Variance = tuple[float, float]
"""A variance and its degrees of freedom."""


@dataclass(frozen=True)
class SecondSpeed:
    """``num_far`` of ``num_attempts`` are about ``log_distance``, a logarithm, off the median of their point."""

    num_far: int
    num_attempts: int
    log_distance: float

    def __str__(self) -> str:
        return (
            f"{self.num_far} of {self.num_attempts} attempts are about {100 * self.log_distance:.2g} % off the others"
        )


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of logarithms: what ``num_points`` points share; 0 of fewer than ``MIN_POINTS``, which share no variance.

    ``variance`` has ``freedom`` degrees of freedom. ``robust_sd`` is that of a rather noisy point, infinite where
    nothing is pulled in. ``pooled`` is the variance of all attempts about their points' means. ``correlation`` is that
    of successive attempts if beyond chance; ``likely_correlation``: the likeliest; ``is_unseen``: too few show one.
    """

    variance: float
    freedom: float
    robust_sd: float = math.inf
    num_points: int = 0
    pooled: Variance = (0.0, 0.0)
    second_speed: SecondSpeed | None = None
    correlation: float = 0.0
    likely_correlation: float = 0.0
    is_unseen: bool = False

    @property
    def of_a_change(self) -> Spread:
        """The one that a change between runs must also hold by: of values as measured, correlated as is likely."""
        return replace(self, robust_sd=math.inf, correlation=max(self.correlation, self.likely_correlation))

    @property
    def of_a_fail(self) -> Spread:
        """The one that a fail must also hold by: of values as measured, correlated where they don't show whether."""
        return replace(self, robust_sd=math.inf, correlation=UNSEEN if self.is_unseen else self.correlation)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which assumptions the attempts break, in words."""
        speeds = (f"two speeds: {self.second_speed}",) if self.second_speed else ()
        alike = f"successive attempts are alike (correlation up to {self.correlation:.2g})"
        return (*speeds, alike) if self.correlation else speeds

    def pulled_in(self, values: Sequence[float]) -> list[float]:
        """The values of one point, none farther from their median than 3 robust standard deviations."""
        return list(values) if self.robust_sd == math.inf else pulled_in(values, self.robust_sd)

    def moderated(self, variance: float, freedom: float) -> Variance:
        """A point's variance shrunk towards the common one (:func:`prior`); an outlying variance does not change."""
        if self.variance > 0 and _stands_out(variance / self.variance, freedom, self.freedom, _NOISY):
            return variance, freedom
        return pooled([(self.variance, self.freedom), (variance, freedom)])

    def widened(self, variance: float, freedom: float, num_attempts: int) -> Variance:
        """A point's variance with the additions of two speeds and of correlated attempts."""
        if self.second_speed and variance < self.pooled[0]:
            variance, freedom = self.pooled
        return variance * variance_inflation(num_attempts, self.correlation), freedom


def common_spread(
    points: Sequence[Sequence[float]], *, more_follow: bool = False, usual_correlation: float = 0.0
) -> Spread | None:
    """Spread of the points' values, each in the order of measuring; ``None`` if none has two.

    ``more_follow``: attempts may be added to these. ``usual_correlation`` is that of other runs of the metric.
    """
    several = [values for values in points if len(values) > 1]
    if not several:
        return None
    correlation, likely = lag_correlation(several, more_follow=more_follow, usual=usual_correlation)
    alone = Spread(variance=0.0, freedom=0.0, correlation=correlation, likely_correlation=likely)
    if len(several) < MIN_POINTS:
        return replace(alone, is_unseen=correlation < UNSEEN and max(map(len, several)) < ATTEMPTS_OF_FEW)
    speeds = second_speed(several)
    robust = math.inf if speeds else _usual_sd(several)
    pulled = several if speeds else [pulled_in(values, robust) for values in several]
    own = [(variance_of(values), float(len(values) - 1)) for values in pulled]
    positive = [variance for variance, _ in own if variance > 0]
    if not positive:
        return alone
    least = _LEAST_VARIANCE * median(positive)
    variance, freedom = _prior_of_alike([max(value, least) for value, _ in own], [freedom for _, freedom in own])
    return replace(
        alone,
        variance=variance,
        freedom=freedom,
        robust_sd=robust,
        num_points=len(several),
        pooled=pooled(own),
        second_speed=speeds,
    )


def second_speed(points: Sequence[Sequence[float]]) -> SecondSpeed | None:
    """Whether attempts have two speeds: more of them are far off their point's median than bad attempts would be.

    ``points`` are logarithms of one metric, each point with two attempts or more. ``None`` also of fewer than
    ``MIN_POINTS``. Of twenty equal runs on an H100 four were 3.1 % off (docs/results/h200x4_2026-11-27.md).
    """
    if len(points) < MIN_POINTS:
        return None
    usual = _usual_sd(points)
    far = [
        abs(value - median(values))
        for values in points
        for value, pulled in zip(values, pulled_in(values, usual), strict=True)
        if value != pulled
    ]
    num_attempts = sum(map(len, points))
    return SecondSpeed(len(far), num_attempts, median(far)) if len(far) > _BAD_SHARE * num_attempts else None


def _usual_sd(points: Sequence[Sequence[float]]) -> float:
    """Robust standard deviation of a rather noisy point among ``points``."""
    return quantiles(map(robust_sd, points), n=100, method="inclusive")[round(100 * _COMMON_QUANTILE) - 1]


def _prior_of_alike(variances: Sequence[float], freedoms: Sequence[float]) -> Variance:
    """The prior of the points that are left when those that scatter more than the others are taken out, worst first."""
    alike = sorted(zip(variances, freedoms, strict=True))
    common = prior(*zip(*alike, strict=True))
    while len(alike) > _FEWEST_ALIKE:
        (worst, freedom), others = alike[-1], alike[:-1]
        following = prior(*zip(*others, strict=True))
        if not _stands_out(worst / following[0], freedom, following[1], _NOISY / len(alike)):
            break
        alike, common = others, following
    return common


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
