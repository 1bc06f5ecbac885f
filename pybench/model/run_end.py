"""Steps before the end of a run's time: the rule that a worker follows, and that its host holds it against."""

from __future__ import annotations

_FINISHING_NS = 1_000_000_000
"""What is left to report after the last step."""


def fit(num_steps: int, step_ns: int, now_ns: int, end_ns: int | None) -> bool:
    """Whether so many steps of ``step_ns`` from ``now_ns`` on end early enough; always without an end.

    Times are of CLOCK_MONOTONIC on the run's leading host.
    """
    return end_ns is None or now_ns + num_steps * step_ns + _FINISHING_NS <= end_ns
