"""The binomial distribution."""

from __future__ import annotations

import math


def at_least(num: int, trials: int, share: float) -> float:
    """Probability of ``num`` successes or more of so many trials, each with the probability ``share`` above 0."""
    if not num or share >= 1:
        return 1.0
    terms = (
        math.lgamma(trials + 1) - math.lgamma(n + 1) - math.lgamma(trials - n + 1) + n * math.log(share)
        + (trials - n) * math.log1p(-share)
        for n in range(num, trials + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(math.exp(term) for term in terms))
