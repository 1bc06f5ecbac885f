"""A night judged by the nights before it: what ``pybench gate`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pybench.cli.exit_codes import INCOMPARABLE
from pybench.model.figures import FigureKey, SmallestEffects

GateState = Literal[
    "pass", "regressed", "improved", "learning", "undecided", "host off", "clock", "incomparable", "not measured"
]  # fmt: skip
"""Of a row: within or beyond what nights scatter; too few nights; a rerun that neither confirms nor clears; shifted
with all other rows; a change that the clock explains; measured otherwise before; absent. Of a night: its worst row."""

EXIT_CODES: dict[GateState, int] = {
    "regressed": 1,
    "not measured": 1,
    "host off": 4,
    "clock": 4,
    "incomparable": INCOMPARABLE,
    "undecided": 4,
    "improved": 0,
    "pass": 0,
    "learning": 4,
}
BY_IMPORTANCE: tuple[GateState, ...] = tuple(EXIT_CODES)

Confirmation = Literal["confirmed", "not confirmed", "cleared"]


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A change that somebody accepts: from ``since`` (a date) on, the rows that it is about have a new level.

    ``point`` is ``None`` for all points of ``suite``, ``metric`` for all metrics. ``suite`` is ``None`` where the point
    of any suite is meant, and ``gpu``, the UUID of one GPU of a machine, where any machine is.
    """

    since: str
    reason: str
    point: str | None = None
    metric: str | None = None
    suite: str | None = None
    gpu: str | None = None

    def is_of(self, row: FigureKey) -> bool:
        """Whether it is about a row of its suite and machine."""
        return self.point in {None, row.point_id} and self.metric in {None, row.metric}

    def holds_on(self, created_utc: str) -> bool:
        """Whether it holds for a run of that time already."""
        return self.since <= created_utc[: len(self.since)]


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """When a row's level changed, by the change-point test: the first night of the new level, and its 95 % limits.

    ``fraction`` is the new level over the one before, less 1.
    """

    since: str
    earliest: str
    latest: str
    fraction: float


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """One row of a night.

    ``before`` is the centre of the nights it is judged by and ``now`` the night's value, in ``unit``. ``fraction`` is
    the change of the last ``num_recent`` nights together. ``spread_fraction`` is the standard deviation between nights,
    ``detectable_fraction`` the change for the worse that one night finds with 95 % power. ``p`` is the probability of a
    change this far from nights that did not change. ``reason`` is what else is known. ``nights_as_far`` counts earlier
    nights: those with a change as large, soon over, in any row of the metric; and all.
    """

    row: FigureKey
    unit: str
    state: GateState
    reason: str = ""
    before: float | None = None
    now: float | None = None
    fraction: float | None = None
    num_recent: int = 1
    num_nights: int = 0
    spread_fraction: float | None = None
    detectable_fraction: float | None = None
    p: float | None = None
    level_change: LevelChange | None = None
    confirmation: Confirmation | None = None
    nights_as_far: tuple[int, int] = (0, 0)

    @property
    def as_far_text(self) -> str:
        """How many earlier nights had a change as large that did not last."""
        return "{} of {} earlier nights gave such a false alarm".format(*self.nights_as_far)


@dataclass(frozen=True, kw_only=True)
class HostShift:
    """All points of a night moved together: by how much, at how many of them, and what was seen of the GPUs.

    ``level_change`` is when what they share changed, ``None`` where that is not known.
    """

    noun: str
    fraction: float
    num_shifted: int
    num_points: int
    evidence: tuple[str, ...] = ()
    level_change: LevelChange | None = None


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """A night. ``rows`` stand with the most important first.

    ``num_nights`` are the nights that agree with this one in every key. ``differences`` name the keys that keep earlier
    nights apart, with the number of nights; ``broken`` are nights whose verdict was bad; ``num_later`` are later ones.
    ``unmeasured`` are points, each with the reason, that failed or were not reached and of which no night has a row.
    ``is_unfinished``: a point was to be measured and no attempt of it was made. ``acceptance`` is what would accept
    that the ``host`` is off, its reason empty; ``None`` where it is not off.
    """

    run_id: str
    suite: str
    state: GateState
    rows: tuple[GateRow, ...]
    num_nights: int
    host: tuple[HostShift, ...] = ()
    differences: tuple[str, ...] = ()
    unmeasured: tuple[tuple[str, str], ...] = ()
    broken: tuple[str, ...] = ()
    num_later: int = 0
    is_unfinished: bool = False
    effects: SmallestEffects = field(default_factory=SmallestEffects)
    note: str | None = None
    acceptance: Accepted | None = None


def overall(
    rows: Sequence[GateRow], host: Sequence[HostShift] = (), unmeasured: Sequence[tuple[str, str]] = ()
) -> GateState:
    """The worst state. Rows that still learn, or improve, do not keep a night from passing in which others pass."""
    states = {*(row.state for row in rows), *(["host off"] if host else []), *(["not measured"] if unmeasured else [])}
    worst: GateState = next((state for state in BY_IMPORTANCE if state in states), "learning")
    return "pass" if worst == "improved" and "pass" in states else worst
