"""When steps are steady: the rule that ends a warm-up, and that measured steps can meet as well."""

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
