"""A run beside its references: what ``pybench compare`` shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pybench.model.figures import Row

ChangeVerdict = Literal["unchanged", "improved", "regressed", "differs", "undecided", "not measured", "incomparable"]
"""The interval of the change is within the smallest effect, beyond it on either side, or across its limit. *Differs*:
beyond it on the worse side, with one reference and no spread between runs. These two runs differ, as equal runs may.
Not measured, incomparable: there is no interval, since the row is absent, or what must be equal differs."""

SMALLEST_EFFECT = 0.01
"""A change below 1 % is none that anybody acts on."""


@dataclass(frozen=True, kw_only=True)
class SmallestEffects:
    """Fraction of a metric's value below which a change counts as none."""

    default: float = SMALLEST_EFFECT
    by_metric: dict[str, float] = field(default_factory=dict)

    def of(self, metric: str) -> float:
        """That of one metric."""
        return self.by_metric.get(metric, self.default)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row of a run against the same row of its references.

    ``before`` and ``now`` are geometric means over attempts, in ``unit``. ``fraction`` is now over before, less 1, with
    its 95 % interval: positive is more, whichever is better. ``reason`` is why there is no verdict, and what else is
    known of a change.
    """

    row: Row
    unit: str
    verdict: ChangeVerdict
    reason: str = ""
    before: float | None = None
    now: float | None = None
    fraction: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def difference(self) -> float | None:
        """Now less before, in ``unit``: joules where the metric is an energy."""
        return None if self.now is None or self.before is None else self.now - self.before


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A run against its references, the most important row first.

    ``differences`` are the keys that forbid a comparison, ``wanted`` the keys that differ and may. ``left_out`` names
    references that are not comparable, each with its reason, where others are. ``added`` are rows that are new.
    ``num_between`` are the runs whose spread is part of the intervals, with one reference; 0 where none is known.
    """

    run_id: str
    suite: str
    reference_ids: tuple[str, ...]
    verdict: ChangeVerdict
    changes: tuple[Change, ...]
    added: tuple[Row, ...] = ()
    differences: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    num_between: int = 0
    effects: SmallestEffects = field(default_factory=SmallestEffects)
