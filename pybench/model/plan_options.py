"""Changes of a suite by the command line: the options that ``pybench run`` and ``pybench plan`` share."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

_HOUR_S, _MINUTE_S = 3600, 60
MOST_TIME_S = 7 * 24 * _HOUR_S
"""The longest time limit of a run."""

PartOf = Literal["ab", "aa"]
"""The option of ``pybench run`` that marks one of several runs, which are no nights of a history."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """``None`` and ``()`` leave the suite as it is.

    ``keep`` is the expression of ``-k``, ``settings`` are the texts ``KEY=VALUE`` of ``--set`` in their order, and
    ``time_limit_s`` is for all attempts of the run together.
    """

    profile: str | None = None
    keep: str | None = None
    max_gpus: int | None = None
    require: str | None = None
    attempts: int | None = None
    steps: int | None = None
    settings: tuple[str, ...] = ()
    time_limit_s: float | None = None

    def words(self) -> tuple[str, ...]:
        """Each option in its written form, such as ``--set batch_size=1``; the suite has the profile."""
        limit = None if self.time_limit_s is None else duration_text(self.time_limit_s)
        named = (
            ("-k", self.keep),
            ("--max-gpus", self.max_gpus),
            ("--require", self.require),
            *(("--set", word) for word in self.settings),
            ("--attempts", self.attempts),
            ("--steps", self.steps),
            ("--time-limit", limit),
        )
        return tuple(f"{option} {shlex.quote(str(value))}" for option, value in named if value is not None)


def duration_text(seconds: float) -> str:
    """As ``--time-limit`` reads it: ``1h30m``, ``20m``, ``90s``."""
    whole = round(seconds)
    hours, minutes, rest = whole // _HOUR_S, whole % _HOUR_S // _MINUTE_S, whole % _MINUTE_S
    if rest and whole < 10 * _MINUTE_S:
        return f"{whole}s"
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def time_limit_text(seconds: float) -> str:
    """The option as it is written."""
    return f"--time-limit {duration_text(seconds)}"


NO_OPTIONS = PlanOptions()
"""Everything that the suite expects, on all of the machine."""
