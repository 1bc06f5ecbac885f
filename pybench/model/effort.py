"""How much measuring a point gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pybench.model.limits import Range

_LONGEST_COLLECTIVE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much measuring a point gets; the suite file's checks and its JSON Schema are derived from these fields."""

    attempts: Annotated[int, Range(1, 100), "worker processes per point: run-to-run spread"] = 3
    max_attempts: Annotated[int, Range(1, 1000), "attempts at most while a verdict is inconclusive"] = 6
    steps: Annotated[int, Range(1, 10_000), "measured iterations per attempt"] = 5
    max_warmup_steps: Annotated[int, Range(0, 1000), "ceiling of the warm-up, in steps"] = 10
    dither_ms: Annotated[
        float, Range(0, 1000), "a power sensor's sampling period: pauses spread steps over all its phases"
    ] = 0.0
    time_limit_s: Annotated[float, Range(1, 86_400), "wall clock of one attempt before it is ended"] = 900.0
    collective_timeout_s: Annotated[
        float | None,
        Range(1, 86_400),
        "how long a rank waits for others in a collective; default: two thirds of time_limit_s, at most 600",
    ] = None
    share_process: Annotated[
        bool, "whether one worker process may measure several points that need the same engine, one after another"
    ] = True

    @property
    def longest_collective_s(self) -> float:
        """After so long a wait a collective hangs; before the attempt's limit, unless the suite has another."""
        return self.collective_timeout_s or min(_LONGEST_COLLECTIVE_S, self.time_limit_s * 2 / 3)
