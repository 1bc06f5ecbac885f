"""One unit against the others: a node among nodes, a night among nights.

A value is compared with the mean of the others by the prediction interval of one more value. Outliers are pulled in,
and the variance between units is shrunk towards the other rows' (:mod:`pybench.core.statistics.spread`). Values are
logarithms, higher is better.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from pybench.core.statistics.distributions import quantile, upper_tail
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.memory import sum_of_lags
from pybench.core.statistics.spread import LEAST_SD, MIN_POINTS, Variance, pooled, prior, pulled_in, variance_of

MIN_UNITS = 3
"""Of two units that differ, neither is the usual one."""
_MANY = 32
"""From this number on, one unit is not left out of the others: it changes their mean and spread by less than 3 %."""
_POWER = 0.95
_MIN_SEPARATION = 5.0
"""Least distance of two groups' means, in standard deviations within them. The best split of one normal group has 2.7
on average; of 400 simulated groups of 16 to 256 units none reached 5, of 8 units 4 %."""

Unit = TypeVar("Unit", bound=Hashable)


@dataclass(frozen=True)
class Others:
    """The ``num`` values that a unit is compared with.

    ``variance`` is that between units, with ``freedom`` degrees of freedom. ``correlation`` is that of a unit with the
    one before it: nights resemble each other.
    """

    mean: float
    variance: float
    freedom: float
    num: int
    correlation: float = 0.0

    def error(self, num_values: int = 1, own_variance: float = 0.0) -> float:
        """Standard error of the mean of new values less the mean of the others; the larger variance counts."""
        shares = (variance_of_mean(num, self.correlation) for num in (num_values, self.num))
        return math.sqrt(max(self.variance, own_variance) * sum(shares))

    def p_lower(self, value: float, num_values: int = 1, own_variance: float = 0.0) -> float:
        """Probability of a mean of ``num_values`` new values as low as ``value``, or lower, by chance."""
        return upper_tail((self.mean - value) / self.error(num_values, own_variance), self.freedom)

    def detectable_fraction(self, level: float) -> float:
        """The decrease, a positive fraction, that one new value shows with 95 % power at a one-sided ``level``.

        The t of the level and the normal quantile of the power are added (H. Bloom, Evaluation Review 19, 1995,
        "minimum detectable effects").
        """
        return -as_fraction(-(quantile(level, self.freedom) + quantile(1 - _POWER, math.inf)) * self.error())


def variance_of_mean(num: int, correlation: float) -> float:
    """Variance of the mean of ``num`` values with a variance of 1 and a lag-1 correlation."""
    return sum_of_lags(num, correlation) / num


def spread_of(values: Sequence[float]) -> Variance:
    """Variance of values with outliers pulled in, at least :data:`LEAST_SD` squared."""
    return max(variance_of(pulled_in(values)), LEAST_SD**2), len(values) - 1


def prior_of(spreads: Mapping[Unit, Variance]) -> Variance:
    """Common prior of the rows' variances; without degrees of freedom for fewer than ``MIN_POINTS`` rows."""
    if len(spreads) < MIN_POINTS:
        return 0.0, 0.0
    return prior([variance for variance, _ in spreads.values()], [freedom for _, freedom in spreads.values()])


def moderated(spreads: Mapping[Unit, Variance]) -> dict[Unit, Variance]:
    """Shrink each row's variance, at least ``LEAST_SD**2``, towards the variance of all rows."""
    floored = {key: (max(variance, LEAST_SD**2), freedom) for key, (variance, freedom) in spreads.items()}
    common = prior_of(floored)
    return {key: pooled([common, spread]) for key, spread in floored.items()}


def others_by_unit(values: Mapping[Unit, float], common: Variance) -> Iterator[tuple[Unit, Others]]:
    """For each unit, the statistics of all other units. ``common`` is what rows have in common (prior_of)."""
    whole = _others([*values.values()], common) if len(values) > _MANY else None
    for unit in values:
        yield unit, whole or _others([value for other, value in values.items() if other != unit], common)


def _others(values: Sequence[float], common: Variance) -> Others:
    near = pulled_in(values)
    return Others(fmean(near), *pooled([common, spread_of(near)]), len(near))


def lower_group(values: Mapping[Unit, float], least: int, smallest: float) -> frozenset[Unit]:
    """The units of the lower of two groups that values fall into; none where they are one group.

    Each group has ``least`` units or more, and their means differ by ``smallest`` or more. The split is the one with
    the smallest sum of squares.
    """
    ordered = sorted(values, key=values.__getitem__)
    num, total = len(ordered), 0.0
    centre = fmean(values.values()) if num else 0.0
    squares = sum((value - centre) ** 2 for value in values.values())
    best, best_within = 0, math.inf
    for place, unit in enumerate(ordered[:-1], 1):
        total += values[unit] - centre
        within = squares - total**2 * num / (place * (num - place))
        if least <= place <= num - least and within < best_within:
            best, best_within = place, within
    if not best:
        return frozenset()
    low, high = ordered[:best], ordered[best:]
    sd = max(math.sqrt(max(best_within, 0.0) / (num - 2)), LEAST_SD)
    distance = fmean(values[unit] for unit in high) - fmean(values[unit] for unit in low)
    return frozenset(low) if distance >= max(smallest, _MIN_SEPARATION * sd) else frozenset()
