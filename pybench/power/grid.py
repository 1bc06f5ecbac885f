"""The grid on which a board publishes its counter, found from readings, and the counter's values placed on it.

No period is assumed. Each new value was published between two readings, and nothing was published between two equal
readings: periods and phases that violate neither are candidates. The search doubles the number of readings: few allow a
coarse step, more refine the periods left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pybench import _energy
from pybench.power.counter import PUBLICATION_BLUR_S, Anchors, Readings
from pybench.power.samples import Column

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
# Phases tried within the range that fits; a phase error only looks like a longer lag.
PHASES = (0.5, 0.1, 0.9)
# A grid with at most 5 % + 0.05 more unevenness than the least uneven one counts as equal; one miscounted publication
# adds 0.5 and more.
EVEN_FACTOR = 1.05
EVEN_FLOOR = 0.05


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


def evenest(placed: Sequence[tuple[Anchors, PublicationGrid]]) -> tuple[Anchors, PublicationGrid]:
    """The heaviest of the grids with about the least unevenness: the choice when only the counter is known."""
    least = min(anchors.unevenness() for anchors, _ in placed)
    even = [pair for pair in placed if pair[0].unevenness() <= EVEN_FACTOR * least + EVEN_FLOOR]
    return max(even, key=lambda pair: pair[1].weight)


def candidate_grids(readings: Readings, elsewhere: Readings | None = None) -> list[PublicationGrid]:
    """Grids that the readings allow, none if none fits, with periods that readings ``elsewhere`` allow.

    Readings a minute apart allow millions of periods; the beginning of a recording determines the period.
    """
    known_s: Sequence[Column] = ()
    if elsewhere is not None:
        columns = (elsewhere.before_s, elsewhere.after_s, elsewhere.energy_mj)
        known_s = _known_periods_s(*(column.tobytes() for column in columns))
    families, zero_s = _families(readings, known_s)
    return [grid for family in families for grid in family.grids(zero_s)]


@lru_cache(maxsize=MOST_KNOWN)
def _known_periods_s(before_s: bytes, after_s: bytes, energy_mj: bytes) -> tuple[Column, ...]:
    """Periods of each family; cached, since every window of a recording needs those of its beginning."""
    times_s = (np.frombuffer(before_s), np.frombuffer(after_s))
    families, _ = _families(Readings(*times_s, np.frombuffer(energy_mj, dtype=np.int64)))
    return tuple(family.period_s for family in families)


@dataclass(frozen=True)
class _Family:
    """Adjacent periods that fit, each with its earliest and latest phase."""

    period_s: Column
    low_s: Column
    high_s: Column

    def split(self, step_s: float) -> list[_Family]:
        cuts = np.flatnonzero(np.diff(self.period_s) > 2 * step_s) + 1
        if not len(cuts):
            return [self]
        parts = (np.split(column, cuts) for column in (self.period_s, self.low_s, self.high_s))
        return [_Family(*columns) for columns in zip(*parts, strict=True)]

    def grids(self, zero_s: float) -> list[PublicationGrid]:
        period_s = self.period_s
        round_s = self._round_period_s()
        num_others = NUM_OTHERS if round_s is None else NUM_WITH_ROUND
        last = len(period_s) - 1
        spread = sorted({last, *(int(part * last / (num_others - 1)) for part in range(num_others))})
        chosen = [(float(period_s[at]), at, OTHER_WEIGHT / len(spread)) for at in spread]
        if round_s is not None:
            chosen.append((round_s, int(np.argmin(np.abs(period_s - round_s))), ROUND_WEIGHT))
        return [
            PublicationGrid(period, zero_s + float(self.low_s[at] + part * (self.high_s[at] - self.low_s[at])), weight)
            for period, at, weight in chosen
            for part in PHASES
        ]

    def _round_period_s(self) -> float | None:
        middle_s = (self.period_s[0] + self.period_s[-1]) / 2
        for unit_s in ROUND_PERIODS_S:
            round_s = float(np.round(middle_s / unit_s) * unit_s)
            if self.period_s[0] <= round_s <= self.period_s[-1]:
                return round_s
        return None


def _families(readings: Readings, known_s: Sequence[Column] = ()) -> tuple[list[_Family], float]:
    """Periods that fit the readings, near ``known_s`` if given, and the origin of their phases."""
    low_s, high_s = readings.brackets
    if len(low_s) < MIN_CHANGES:
        return [], 0.0
    quiet_start_s, quiet_end_s = readings.quiet_spans
    shortest_s = max(SHORTEST_PERIOD_S, float(np.max(quiet_end_s - quiet_start_s, initial=0.0)))
    longest_s = readings.longest_period_s
    if known_s:
        shortest_s = max(shortest_s, float(min(part.min() for part in known_s)) * (1 - KNOWN_MARGIN))
        longest_s = min(longest_s, float(max(part.max() for part in known_s)) * (1 + KNOWN_MARGIN))
    tightest = int(np.argmin(high_s - low_s))
    zero_s = float(low_s[tightest] + high_s[tightest]) / 2
    near = np.argsort(np.abs((low_s + high_s) / 2 - zero_s))
    search = _Search(
        low_s=low_s[near] - zero_s,
        high_s=high_s[near] - zero_s,
        quiet_start_s=quiet_start_s - zero_s,
        quiet_end_s=quiet_end_s - zero_s,
        shortest_s=shortest_s,
    )
    return search.families(longest_s), zero_s


@dataclass(frozen=True)
class _Search:
    """Brackets sorted by distance from the tightest, whose middle is time 0."""

    low_s: Column
    high_s: Column
    quiet_start_s: Column
    quiet_end_s: Column
    shortest_s: float

    def families(self, longest_s: float) -> list[_Family]:
        if longest_s <= self.shortest_s:
            return []
        half_s = float(self.high_s[0] - self.low_s[0]) / 2
        num, step_s = min(FIRST_CHANGES, len(self.low_s)), longest_s
        periods_s = np.array([])
        while True:
            reach_s = float(np.max(np.abs((self.low_s[:num], self.high_s[:num]))))
            # Half a step of error displaces the farthest publication by an eighth of the tightest bracket.
            finer_s = half_s * self.shortest_s / reach_s / 4
            if len(periods_s):
                parts = int(np.ceil(step_s / finer_s))
                if parts * len(periods_s) > MOST_PERIODS:
                    return []
                periods_s = (periods_s[:, None] + (np.arange(parts) - (parts - 1) / 2) * finer_s).ravel()
            else:
                if (longest_s - self.shortest_s) / finer_s > MOST_FIRST_PERIODS:
                    return []
                periods_s = np.arange(self.shortest_s, longest_s + finer_s, finer_s)
            step_s = finer_s
            family = self._fitting(periods_s, num, half_s, slack_s=finer_s * reach_s / self.shortest_s)
            if num == len(self.low_s) or not len(family.period_s):
                return family.split(step_s) if len(family.period_s) else []
            periods_s, num = family.period_s, min(2 * num, len(self.low_s))

    def _fitting(self, periods_s: Column, num: int, half_s: float, slack_s: float) -> _Family:
        """Periods with a phase that fits the first ``num`` brackets and the quiet spans among them."""
        low_s, high_s = self.low_s[:num], self.high_s[:num]
        near = (self.quiet_start_s > low_s.min()) & (self.quiet_end_s < high_s.max())
        quiet = (self.quiet_start_s[near], self.quiet_end_s[near])
        return _Family(*_energy.fitting_periods(periods_s, (low_s, high_s), quiet, half_s, slack_s))
