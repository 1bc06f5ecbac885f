"""How much error one look at the figures may spend, when attempts are added until a verdict is reached.

Looking again after each added attempt gives chance several tries. Each look therefore gets a smaller level, so that all
looks together err in 2.5 % a side. The number of looks that are as good as independent grows with the logarithm of
last over first. The factors were found by simulation of 3 to 6 attempts (``tests/benchmarks/test_verdict_errors.py``):
a row of one point has fewer degrees of freedom than a ratio, so its looks agree less.
"""

from __future__ import annotations

import math

ERROR = 0.025
"""Probability of a false pass, and of a false fail, of a row exactly at its limit, over all looks."""

_FACTOR_OF_ONE_POINT, _FACTOR_OF_SEVERAL = 3.0, 1.6


def level_per_look(first: int, last: int, num_points: int) -> float:
    """One-sided level of each look at a row of so many points, from ``first`` attempts to at most ``last``."""
    factor = _FACTOR_OF_ONE_POINT if num_points == 1 else _FACTOR_OF_SEVERAL
    return ERROR / (1 + factor * math.log(max(last, first) / max(first, 1)))
