"""The energy counter: its readings, the grid on which a board publishes it, and anchors: moments with a known sum.

No period is assumed. Each new value was published between two readings, and nothing was published between two equal
readings: periods and phases that violate neither are candidates. The search doubles the number of readings: few allow a
coarse step, more refine the periods left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.samples import Column, seconds_since
from pybench.power.trace import CounterColumns

# Standard deviation in s of a publication's time about its grid. On eight H200s half of all publications were within
# 0.14 ms, one in twenty 1.5 to 4 ms away.
PUBLICATION_BLUR_S = 0.6e-3
# Longest period of publication in s; known boards publish every 20 to 100 ms.
LONGEST_PERIOD_S = 0.5


@dataclass(frozen=True)
class Readings:
    """Readings of the counter. Each value was taken at some moment between ``before_s`` and ``after_s``."""

    before_s: Column
    after_s: Column
    energy_mj: npt.NDArray[np.int64]

    @classmethod
    def of(cls, counter: CounterColumns, origin_ns: int) -> Readings:
        """All readings except lone wrong ones, in seconds since ``origin_ns``.

        A value out of an order that both its neighbours keep is a driver error.
        """
        # int64 holds 292 years of a kilowatt in mJ, and differences stay signed.
        energy_mj = np.asarray(counter.energy_mj, dtype=np.uint64).astype(np.int64)
        wrong = np.zeros(len(energy_mj), dtype=bool)
        last, value, following = energy_mj[:-2], energy_mj[1:-1], energy_mj[2:]
        wrong[1:-1] = (last <= following) & ((value < last) | (value > following))
        before_s, after_s = seconds_since(counter.before_ns, origin_ns), seconds_since(counter.after_ns, origin_ns)
        return cls(before_s, after_s, energy_mj).keep(~wrong) if wrong.any() else cls(before_s, after_s, energy_mj)

    def keep(self, which: npt.NDArray[np.bool_] | slice) -> Readings:
        """The marked readings."""
        return Readings(self.before_s[which], self.after_s[which], self.energy_mj[which])

    def near(self, start_s: float, end_s: float) -> Readings:
        """Readings made between two times."""
        first = int(np.searchsorted(self.after_s, start_s))
        return self.keep(slice(first, int(np.searchsorted(self.before_s, end_s, side="right"))))

    def beginning(self, length_s: float) -> Readings:
        """Readings within ``length_s`` of the first, in whole ns since it: equal whatever the origin."""
        if not len(self.before_s):
            return self
        first_s = float(self.before_s[0])
        part = self.near(-np.inf, first_s + length_s)
        before_s, after_s = (np.rint((time_s - first_s) * 1e9) / 1e9 for time_s in (part.before_s, part.after_s))
        return Readings(before_s, after_s, part.energy_mj)

    def without_resets(self, start_s: float, end_s: float) -> Readings | None:
        """The run of readings around a window without a fall; ``None`` if the counter fell within the window."""
        falls = np.flatnonzero(self.energy_mj[1:] < self.energy_mj[:-1])
        if not len(falls):
            return self
        if np.any((self.after_s[falls + 1] >= start_s) & (self.before_s[falls] <= end_s)):
            return None
        earlier = falls[self.after_s[falls + 1] < start_s]
        later = falls[self.before_s[falls] > end_s]
        first = earlier[-1] + 1 if len(earlier) else 0
        return self.keep(slice(int(first), int(later[0]) + 1 if len(later) else None))

    @cached_property
    def firsts(self) -> npt.NDArray[np.intp]:
        """Index of the first reading of each value; equal values are adjacent."""
        return np.concatenate(([0], self.changes)) if len(self.energy_mj) else self.changes

    @cached_property
    def changes(self) -> npt.NDArray[np.intp]:
        """Index of the first reading of each value but the first."""
        return np.flatnonzero(self.energy_mj[1:] != self.energy_mj[:-1]) + 1

    @cached_property
    def brackets(self) -> tuple[Column, Column]:
        """Earliest and latest moment of each new value's publication."""
        return self.before_s[self.changes - 1], self.after_s[self.changes]

    @property
    def longest_period_s(self) -> float:
        """Upper limit of the publication period, by the two closest publications."""
        low_s, high_s = self.brackets
        return float(np.min(high_s[1:] - low_s[:-1], initial=LONGEST_PERIOD_S))


@dataclass(frozen=True)
class Anchors:
    """The counter's sum ``energy_j`` at ``time_s``, before the sensor's lag.

    ``blur_s`` is the standard deviation of each time, without an error common to all.
    """

    time_s: Column
    energy_j: Column
    blur_s: Column

    def keep(self, which: npt.NDArray[np.bool_]) -> Anchors:
        """The marked anchors."""
        return Anchors(self.time_s[which], self.energy_j[which], self.blur_s[which])


def without_grid(readings: Readings) -> Anchors:
    """Each new value in the middle of its bracket, which is at most one publication period before the reading."""
    low_s, high_s = readings.brackets
    low_s = np.maximum(low_s, readings.before_s[readings.changes] - readings.longest_period_s)
    energy_j = readings.energy_mj[readings.changes] / 1e3
    return Anchors((low_s + high_s) / 2, energy_j, (high_s - low_s) / np.sqrt(12))


# New values needed for a grid.
MIN_CHANGES = 2
# Shortest period of publication in s; known boards publish every 20 to 100 ms.
SHORTEST_PERIOD_S = 5e-3
# New values that the search begins with.
FIRST_CHANGES = 8
# Most periods tried at first, and kept later. With more the readings don't determine the period: the board publishes
# faster than it is read.
MOST_FIRST_PERIODS = 20_000
MOST_PERIODS = 4000
# Margin around periods known from a recording's beginning, as a fraction.
KNOWN_MARGIN = 2e-4
# Recordings whose beginning is remembered.
MOST_KNOWN = 64
# Firmware has round periods; weights of a round period and of the others before energy is seen.
ROUND_PERIODS_S = (10e-3, 5e-3)
ROUND_WEIGHT = 0.9
OTHER_WEIGHT = 0.1
# Periods of a family that become candidates, without and with a round one.
NUM_OTHERS = 7
NUM_WITH_ROUND = 3


@dataclass(frozen=True)
class PublicationGrid:
    """Publication k is at ``phase_s + k * period_s``; ``weight`` is the prior belief in the grid."""

    period_s: float
    phase_s: float
    weight: float

    def place(self, readings: Readings) -> Anchors | None:
        """Each value at its publication; ``None`` if the grid can't hold the readings.

        All readings of a value saw one publication, and a later value is a later publication.
        """
        first = readings.firsts
        time_s = _energy.published(readings.before_s, readings.after_s, first.tolist(), self.phase_s, self.period_s)
        if time_s is None:
            return None
        return Anchors(time_s, readings.energy_mj[first] / 1e3, np.full(len(first), PUBLICATION_BLUR_S))


Hypotheses = list[tuple[list[Anchors], float]]
"""Anchors of each part of the readings by one grid, and the grid's weight."""


def placed(parts: Sequence[Readings], grids: Sequence[PublicationGrid]) -> Hypotheses:
    """The anchors by each grid that holds the readings; without a grid if none does."""
    hypotheses = []
    for grid in grids:
        anchors = [at for part in parts if (at := grid.place(part)) is not None]
        if len(anchors) == len(parts):
            hypotheses.append((anchors, grid.weight))
    return hypotheses or [([without_grid(part) for part in parts], 1.0)]


def candidate_grids(readings: Readings, elsewhere: Readings | None = None) -> list[PublicationGrid]:
    """Grids that the readings allow, none if none fits, with periods that readings ``elsewhere`` allow.

    Readings a minute apart allow millions of periods; the beginning of a recording determines the period.
    """
    known_s: Sequence[float] = ()
    if elsewhere is not None:
        columns = (elsewhere.before_s, elsewhere.after_s, elsewhere.energy_mj)
        known_s = _known_periods_s(*(column.tobytes() for column in columns))
    families, zero_s = _families(readings, known_s)
    return [grid for family in families for grid in _grids(family, zero_s)]


@lru_cache(maxsize=MOST_KNOWN)
def _known_periods_s(before_s: bytes, after_s: bytes, energy_mj: bytes) -> tuple[float, ...]:
    """Shortest and longest period, if any; cached, since every window of a recording needs those of its beginning."""
    times_s = (np.frombuffer(before_s), np.frombuffer(after_s))
    families, _ = _families(Readings(*times_s, np.frombuffer(energy_mj, dtype=np.int64)))
    periods_s = [float(period_s) for family in families for period_s in family[0]]
    return (min(periods_s), max(periods_s)) if periods_s else ()


def _grids(family: Column, zero_s: float) -> list[PublicationGrid]:
    """Candidates of one family of periods; phases are since ``zero_s``."""
    period_s, low_s, high_s = family
    middle_s = (period_s[0] + period_s[-1]) / 2
    rounds_s = [float(np.round(middle_s / unit_s) * unit_s) for unit_s in ROUND_PERIODS_S]
    round_s = next((each_s for each_s in rounds_s if period_s[0] <= each_s <= period_s[-1]), None)
    num_others = NUM_OTHERS if round_s is None else NUM_WITH_ROUND
    last = len(period_s) - 1
    spread = sorted({last, *(int(part * last / (num_others - 1)) for part in range(num_others))})
    chosen = [(float(period_s[at]), at, OTHER_WEIGHT / len(spread)) for at in spread]
    if round_s is not None:
        chosen.append((round_s, int(np.argmin(np.abs(period_s - round_s))), ROUND_WEIGHT))
    # The middle of the phases that fit: a phase error only looks like a longer lag.
    return [
        PublicationGrid(period, zero_s + float(low_s[at] + high_s[at]) / 2, weight) for period, at, weight in chosen
    ]


def _families(readings: Readings, known_s: Sequence[float] = ()) -> tuple[list[Column], float]:
    """Families of periods that fit the readings, near ``known_s`` if given, and the origin of their phases.

    A family has rows of adjacent periods, earliest and latest phases.
    """
    low_s, high_s = readings.brackets
    if len(low_s) < MIN_CHANGES:
        return [], 0.0
    # From the first to the last reading of a value nothing was published.
    last = np.concatenate((readings.changes - 1, [len(readings.energy_mj) - 1]))
    quiet_s = np.stack((readings.after_s[readings.firsts], readings.before_s[last]))
    quiet_s = quiet_s[:, quiet_s[1] > quiet_s[0]]
    shortest_s = max(SHORTEST_PERIOD_S, float(np.max(quiet_s[1] - quiet_s[0], initial=0.0)))
    longest_s = readings.longest_period_s
    if known_s:
        shortest_s = max(shortest_s, known_s[0] * (1 - KNOWN_MARGIN))
        longest_s = min(longest_s, known_s[1] * (1 + KNOWN_MARGIN))
    # Brackets sorted by distance from the tightest, whose middle is time 0.
    tightest = int(np.argmin(high_s - low_s))
    zero_s = float(low_s[tightest] + high_s[tightest]) / 2
    near = np.argsort(np.abs((low_s + high_s) / 2 - zero_s))
    low_s, high_s, quiet_s = low_s[near] - zero_s, high_s[near] - zero_s, quiet_s - zero_s
    if longest_s <= shortest_s:
        return [], zero_s
    half_s = float(high_s[0] - low_s[0]) / 2
    num, step_s, periods_s = min(FIRST_CHANGES, len(low_s)), longest_s, np.array([])
    while True:
        reach_s = float(np.max(np.abs((low_s[:num], high_s[:num]))))
        # Half a step of error displaces the farthest publication by an eighth of the tightest bracket.
        finer_s = half_s * shortest_s / reach_s / 4
        if len(periods_s):
            parts = int(np.ceil(step_s / finer_s))
            if parts * len(periods_s) > MOST_PERIODS:
                return [], zero_s
            periods_s = (periods_s[:, None] + (np.arange(parts) - (parts - 1) / 2) * finer_s).ravel()
        else:
            if (longest_s - shortest_s) / finer_s > MOST_FIRST_PERIODS:
                return [], zero_s
            periods_s = np.arange(shortest_s, longest_s + finer_s, finer_s)
        step_s = finer_s
        # Periods with a phase that fits the first brackets and the quiet spans among them.
        among_s = quiet_s[:, (quiet_s[0] > low_s[:num].min()) & (quiet_s[1] < high_s[:num].max())]
        slack_s = finer_s * reach_s / shortest_s
        brackets, spans = (low_s[:num], high_s[:num]), (among_s[0], among_s[1])
        found = _energy.fitting_periods(periods_s, brackets, spans, half_s, slack_s)
        periods_s = found[0]
        if not len(periods_s):
            return [], zero_s
        if num == len(low_s):
            return np.split(np.stack(found), np.flatnonzero(np.diff(periods_s) > 2 * step_s) + 1, axis=1), zero_s
        num = min(2 * num, len(low_s))
