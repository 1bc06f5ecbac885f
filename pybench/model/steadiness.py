"""When steps are steady: the rule that ends a warm-up, and that measured steps can meet as well, or be far from."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

STEADY_STEPS = 3
STEADY_FRACTION = 0.05


def are_steady(durations_ns: Sequence[int]) -> bool:
    """Whether they are ``STEADY_STEPS`` or more, all within ``STEADY_FRACTION`` of their median."""
    if len(durations_ns) < STEADY_STEPS:
        return False
    median = statistics.median(durations_ns)
    return all(abs(duration - median) <= STEADY_FRACTION * median for duration in durations_ns)


def are_scattered(durations_ns: Sequence[int]) -> bool:
    """Whether half of ``STEADY_STEPS`` or more lie further than ``STEADY_FRACTION`` from their median.

    A few slow steps among many do not count: the median stands for the others.
    """
    if len(durations_ns) < STEADY_STEPS:
        return False
    median = statistics.median(durations_ns)
    return statistics.median(abs(duration - median) for duration in durations_ns) > STEADY_FRACTION * median
