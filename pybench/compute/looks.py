"""How much error one look at the figures may spend, when attempts are added until a verdict is reached.

Looking again after each added attempt gives chance several tries. Each look therefore gets a smaller level, so that all
looks together err in 2.5 % a side. The number of looks that are as good as independent grows with the logarithm of
last over first; the factor is the least that keeps 2.5 % for Welch's t from 2 to 4, 3 to 6 and 3 to 30 attempts
(``tests/benchmarks/test_verdict_errors.py`` simulates it).
"""

from __future__ import annotations

import math

ERROR = 0.025
"""Probability of a false pass, and of a false fail, of a row exactly at its limit, over all looks."""

_PER_DOUBLING = 1.41


def level_per_look(first: int, last: int) -> float:
    """One-sided level of each look, from ``first`` attempts to at most ``last``."""
    return ERROR / (1 + _PER_DOUBLING * math.log(max(last, first) / max(first, 1)))
