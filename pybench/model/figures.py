"""Figures of a run's points, and the keys that must be equal for a comparison: its rows are metrics of points."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pybench.model.manifest import PartOf
from pybench.model.suite import AxisValue
from pybench.model.verdict import Verdict

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

    row: FigureKey
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
    added: tuple[FigureKey, ...] = ()
    differences: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    num_between: int = 0
    effects: SmallestEffects = field(default_factory=SmallestEffects)


MACHINE_KEYS = ("gpu", "power_limit", "mig", "ecc", "fabric", "driver", "cpu", "kernel", "network")
NO_MEDIANS = "its file does not have the attempts' medians; rebuild it with: pybench report RUN --format json"
NOT_ALONE = "a process of somebody else was on a GPU while it was measured; end it and measure again"


def key_values(keys: Mapping[str, object], name: str) -> list[object]:
    """The values of a key; empty for a key that was not recorded, or of another type."""
    try:
        value = json.loads(str(keys.get(name, "null")))
    except (ValueError, RecursionError):  # a file can hold any text
        return []
    return value if isinstance(value, list) else [] if value is None else [value]


class FigureKey(NamedTuple):
    """One metric of one point: the same in every run of a suite."""

    point_id: str
    metric: str

    def __str__(self) -> str:
        return f"{self.point_id} {self.metric}"


@dataclass(frozen=True, kw_only=True)
class PointFigures:
    """One point of a run.

    ``medians`` has the median step of each good attempt, by metric; a metric that was not measured is absent.
    ``absence`` is why nothing was measured, and is ``None`` where something was; ``is_missing`` is what was to be
    measured then, but failed or was not reached. ``digest`` is equal for points of
    equal work (``None``: not recorded); ``settings``, with the effort, are for naming what differs. ``sm_clock_hz`` is
    the mean over GPUs of their median clocks, ``temperature_c`` the highest, ``held_by`` names what held any down.
    ``options`` are those of the command line that changed the suite.
    """

    id: str
    benchmark: str
    axes: dict[str, AxisValue]
    num_gpus: int
    digest: str | None
    medians: dict[str, tuple[float, ...]]
    absence: str | None = None
    num_failed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    held_by: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    is_missing: bool = False
    options: tuple[str, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Whether no process of somebody else was seen on its GPUs."""
        return "not_alone" not in self.flags


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """One run. ``keys`` must be equal for runs to be compared, by name: machine, software, suite.

    ``part_of`` is ``None`` for a night: a run by itself. ``kept_by`` is the option that kept some points of the suite
    alone, as it was written: "-k parallel=2".
    """

    run_id: str
    created_utc: str
    suite: str
    verdict: Verdict
    keys: dict[str, str]
    points: tuple[PointFigures, ...]
    part_of: PartOf | None = None
    kept_by: str | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for two records of one run alone: machines that begin a run in the same second give it the same id."""
        return self.run_id, *(self.keys.get(name, "") for name in (*MACHINE_KEYS, "machine"))

    @property
    def is_measured(self) -> bool:
        """Whether any point has a figure. Without one, no worker has reported what software there was."""
        return any(point.medians for point in self.points)
