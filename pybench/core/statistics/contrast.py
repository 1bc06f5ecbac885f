"""A sum of means with signs, held against a limit.

Means are of logarithms, so that a ratio is a difference; of fractions about 0 they are of the values themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pybench.core.statistics.distributions import approximate_quantile, quantile, upper_tail
from pybench.core.statistics.spread import Spread, mean_and_variance

# Figures that were computed from equal attempts may differ from their limit in the last digits.
_SAME = 1e-12
_MAX_ATTEMPTS = 100


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """``variance`` and ``freedom`` are of ``value`` (Welch-Satterthwaite).

    ``systematic_sd`` is an uncertainty that attempts do not reduce; ``num_attempts`` the fewest of any side.
    """

    value: float
    variance: float
    freedom: float
    num_attempts: int
    systematic_sd: float = 0.0

    @property
    def _sd(self) -> float:
        return math.hypot(math.sqrt(self.variance), self.systematic_sd)

    @property
    def _spreads(self) -> tuple[tuple[float, float], ...]:
        """Standard deviations with their degrees of freedom; the less certain one counts.

        The systematic term raises the degrees of freedom, so it would understate the spread of few attempts.
        """
        if not self.variance:
            return ((self._sd, math.inf),)
        # The systematic term counts as known: it adds variance without uncertainty.
        total_freedom = min(self.freedom * ((self._sd**2) / self.variance) ** 2, 1e9)
        return (self._sd, total_freedom), (math.sqrt(self.variance), self.freedom)

    def interval(self, tail: float) -> tuple[float, float]:
        """Ends, each exceeded with probability ``tail``."""
        if not self._sd:
            return self.value, self.value
        reach = self.reach(tail)
        return self.value - reach, self.value + reach

    def reach(self, tail: float, of: Callable[[float, float], float] = quantile) -> float:
        """Half of the interval, by quantiles ``of`` Student's t."""
        return max(of(tail, freedom) * sd for sd, freedom in self._spreads)

    def p_below(self, limit: float) -> float:
        """Probability of a value this low, or lower, if the truth is ``limit``."""
        return self._tail(limit - self.value, limit)

    def p_above(self, limit: float) -> float:
        """Probability of a value this high, or higher, if the truth is ``limit``."""
        return self._tail(self.value - limit, limit)

    def _tail(self, distance: float, limit: float) -> float:
        if self._sd <= _SAME * max(1.0, abs(limit)):
            return 0.0 if distance >= -_SAME * max(1.0, abs(limit)) else 1.0
        tails = [upper_tail(distance / sd, freedom) for sd, freedom in self._spreads]
        return max(tails) if distance > 0 else min(tails)

    def is_final(self, limit: float, level: float) -> bool:
        """Whether what is systematic alone keeps it undecided: no number of attempts would decide it."""
        return self.systematic_sd * quantile(level, math.inf) >= abs(self.value - limit) > 0 or not self.variance

    def attempts_to_decide(self, limit: float, level: float, least: int = 0) -> int | None:
        """About how many attempts of each side decide it, ``least`` or more; ``None`` if no number up to 100 does."""
        distance = abs(self.value - limit)
        if self.is_final(limit, level):
            return None
        few, many = self.num_attempts, self.num_attempts + 1
        while self._reach_by(many, level) > distance:
            few, many = many, many * 2
            if few > _MAX_ATTEMPTS:
                return None
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (middle, many) if self._reach_by(middle, level) > distance else (few, middle)
        return max(many, least) if many <= _MAX_ATTEMPTS else None

    def _reach_by(self, num_attempts: int, level: float) -> float:
        """Distance from a limit that this number of attempts with this scatter decides."""
        so_many = Contrast(
            value=self.value,
            variance=self.variance * self.num_attempts / num_attempts,
            freedom=self.freedom * (num_attempts - 1) / max(1, self.num_attempts - 1),
            num_attempts=num_attempts,
            systematic_sd=self.systematic_sd,
        )
        return so_many.reach(level, approximate_quantile)


def contrast(
    above: Sequence[Sequence[float]],
    below: Sequence[Sequence[float]] = (),
    spread: Spread | None = None,
    systematic_sd: float = 0.0,
) -> Contrast | None:
    """The sum of the means of ``above`` less those of ``below``; ``None`` with one attempt in any.

    With ``spread``, the variances are moderated and widened by it, and values far off are pulled in. The mean of pulled
    values may come from a majority that is bad by chance, so a verdict on a machine needs ``spread.of_a_fail``, too.
    """
    sides = (*above, *below)
    num_attempts = min(map(len, sides))
    if num_attempts < 2:  # noqa: PLR2004 - one attempt has no spread
        return None
    value, total, square, least = 0.0, 0.0, 0.0, math.inf
    for place, values in enumerate(sides):
        mean, variance = mean_and_variance(values if spread is None else spread.pulled_in(values))
        freedom = float(len(values) - 1)
        if spread is not None:
            variance, freedom = spread.widened(*spread.moderated(variance, freedom), len(values))
        term = variance / len(values)
        value += mean if place < len(above) else -mean
        total += term
        square += term**2 / freedom
        least = min(least, freedom)
    return Contrast(
        value=value,
        variance=total,
        freedom=total**2 / square if square else least,
        num_attempts=num_attempts,
        systematic_sd=systematic_sd,
    )
