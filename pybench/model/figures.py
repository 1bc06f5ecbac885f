"""The figures of a run's points, and the keys that must be equal for a comparison.

A *row* of a comparison is one metric of one point. Which of two figures is better, and their unit, are the metric's
(:data:`~pybench.model.workloads.registry.METRICS`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pybench.model.plan_options import PartOf
from pybench.model.suite import AxisValue
from pybench.model.verdict import Verdict

MACHINE_KEYS = ("gpu", "power_limit", "mig", "ecc", "fabric", "driver", "cpu", "kernel", "network")
"""Keys of a run that are of its machine."""
NO_MEDIANS = "its file does not have the attempts' medians; rebuild it with: pybench report RUN --format json"
NOT_ALONE = "a process of somebody else was on a GPU while it was measured; end it and measure again"


def key_values(keys: Mapping[str, object], name: str) -> list[object]:
    """The values of a key; empty for a key that was not recorded, or of another type."""
    try:
        found = json.loads(str(keys.get(name, "null")))
    except (ValueError, RecursionError):  # a file can hold any text
        return []
    return found if isinstance(found, list) else [] if found is None else [found]


class Row(NamedTuple):
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
    equal work (``None``: not recorded); ``settings`` are for naming what differs, and empty where a run was
    read from a history. ``sm_clock_hz`` is the mean over GPUs of their median clocks, ``temperature_c`` the highest,
    ``held_by`` names what held any clock down.
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
