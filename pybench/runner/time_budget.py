"""The time that a run may take: which attempts still fit it, and when it is over."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from pybench.compute.schedule import Attempt
from pybench.model.plan_options import duration_text

_MOST_NAMED = 8


class OutOfTimeError(Exception):
    """The run's time was over while an attempt ran; the worker is ended, and nothing of the attempt is kept."""


class TimeBudget:
    """``limit_s`` from now on, for all attempts together; ``None``: without end.

    ``end_s`` is in seconds of ``time.monotonic``.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.end_s = math.inf if limit_s is None else time.monotonic() + limit_s
        self.limit = "" if limit_s is None else f"--time-limit {duration_text(limit_s)}"

    @property
    def is_limited(self) -> bool:
        """Whether it ends."""
        return not math.isinf(self.end_s)

    def fits(self, attempt: Attempt, attempt_s: Mapping[str, float]) -> bool:
        """Whether there is time for the attempt; one that takes nobody knows how long may begin."""
        left_s = self.end_s - time.monotonic()
        return left_s > attempt_s.get(attempt[0].digest, 0.0)

    def left_out_note(self, attempts: Sequence[Attempt]) -> str:
        """A sentence that names the points of attempts which are not made."""
        many = Counter(point.id for point, _ in attempts)
        named = [f"{count} of {name}" for name, count in many.items()][:_MOST_NAMED]
        more = f" and of {len(many) - _MOST_NAMED} more points" if len(many) > _MOST_NAMED else ""
        plural = "attempt is" if len(attempts) == 1 else "attempts are"
        return f"{self.limit}: {len(attempts)} {plural} not made: {', '.join(named)}{more}"
