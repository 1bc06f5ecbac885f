"""The grid on which a board publishes its counter, found from readings at other times.

Nothing is assumed of the period. Every change of the value was published between two readings, and nothing was
published between two readings of one value: periods and phases that contradict neither are candidates. A search that
doubles the number of readings keeps it short: few readings allow a coarse step, and more readings refine what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pybench import _energy
from pybench.power.energy.readings import Readings
from pybench.power.energy.times import Column

MIN_CHANGES = 2
SHORTEST_PERIOD_S = 5e-3
LONGEST_PERIOD_S = 0.5
FIRST_CHANGES = 8
# So many periods to begin with mean the same.
MOST_FIRST_PERIODS = 20_000
# How far the few periods that are kept of many may be beside the true one.
KNOWN_MARGIN = 2e-4
# So many periods left means that the readings can't show it: the board publishes faster than it is read.
MOST_PERIODS = 4000
# The starts of so many GPUs' recordings are kept.
MOST_KNOWN = 64
# Firmware ticks in round numbers; a short recording can't distinguish 100 ms from 100.1 ms, a long one overrules this.
ROUND_PERIODS_S = (10e-3, 5e-3)
ROUND_WEIGHT = 0.9
OTHER_WEIGHT = 0.1
NUM_OTHERS = 7
NUM_BESIDE_ROUND = 3
# A phase that is a little off only makes the lag appear as much longer.
PHASES = (0.5, 0.1, 0.9)


@dataclass(frozen=True)
class PublicationGrid:
    """Publication ``k`` comes at ``phase_s + k * period_s``; ``weight`` is the belief in it before energy is seen."""

    period_s: float
    phase_s: float
    weight: float


@dataclass(frozen=True)
class _Family:
    """Periods that fit, each with the earliest and latest phase that fits it."""

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
        num_others = NUM_OTHERS if round_s is None else NUM_BESIDE_ROUND
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


def candidate_grids(readings: Readings, elsewhere: Readings | None = None) -> list[PublicationGrid]:
    """Grids that the readings allow, none when none fits, of a period that readings ``elsewhere`` allow, if any.

    Readings a minute apart alone would allow millions of periods; those of a recording's start show it well.
    """
    known_s: Sequence[Column] = ()
    if elsewhere is not None:
        columns = (elsewhere.before_s, elsewhere.after_s, elsewhere.energy_mj)
        known_s = _known_periods_s(*(column.tobytes() for column in columns))
    families, zero_s = _families(readings, known_s)
    return [grid for family in families for grid in family.grids(zero_s)]


@lru_cache(maxsize=MOST_KNOWN)
def _known_periods_s(before_s: bytes, after_s: bytes, energy_mj: bytes) -> tuple[Column, ...]:
    """The periods of each family, kept: all windows of a recording need those of its start."""
    times_s = (np.frombuffer(before_s), np.frombuffer(after_s))
    families, _ = _families(Readings(*times_s, np.frombuffer(energy_mj, dtype=np.int64)))
    return tuple(family.period_s for family in families)


def _families(readings: Readings, known_s: Sequence[Column] = ()) -> tuple[list[_Family], float]:
    """Periods that fit the readings, near known ones if there are any, and the time from which phases count."""
    low_s, high_s = readings.brackets
    if len(low_s) < MIN_CHANGES:
        return [], 0.0
    shortest_s, longest_s = _period_limits_s(readings)
    if known_s:
        shortest_s = max(shortest_s, float(min(part.min() for part in known_s)) * (1 - KNOWN_MARGIN))
        longest_s = min(longest_s, float(max(part.max() for part in known_s)) * (1 + KNOWN_MARGIN))
    tightest = int(np.argmin(high_s - low_s))
    zero_s = float(low_s[tightest] + high_s[tightest]) / 2
    near = np.argsort(np.abs((low_s + high_s) / 2 - zero_s))
    quiet_start_s, quiet_end_s = readings.quiet_spans
    search = _Search(
        low_s=low_s[near] - zero_s,
        high_s=high_s[near] - zero_s,
        quiet_start_s=quiet_start_s - zero_s,
        quiet_end_s=quiet_end_s - zero_s,
        shortest_s=shortest_s,
    )
    return search.families(longest_s), zero_s


def _period_limits_s(readings: Readings) -> tuple[float, float]:
    """As short and as long as the period can be."""
    quiet_start_s, quiet_end_s = readings.quiet_spans
    shortest_s = max(SHORTEST_PERIOD_S, float(np.max(quiet_end_s - quiet_start_s, initial=0.0)))
    return shortest_s, longest_period_s(*readings.brackets)


def longest_period_s(low_s: Column, high_s: Column) -> float:
    """As long as a period can be, by the two steps that came soonest after each other."""
    return float(np.min(high_s[1:] - low_s[:-1], initial=LONGEST_PERIOD_S))


@dataclass(frozen=True)
class _Search:
    """Brackets ordered by their distance from the tightest, which has its middle at 0; times are from there."""

    low_s: Column
    high_s: Column
    quiet_start_s: Column
    quiet_end_s: Column
    shortest_s: float

    @property
    def half_s(self) -> float:
        return float(self.high_s[0] - self.low_s[0]) / 2

    def families(self, longest_s: float) -> list[_Family]:
        if longest_s <= self.shortest_s:
            return []
        num, step_s = min(FIRST_CHANGES, len(self.low_s)), longest_s
        periods_s = np.array([])
        while True:
            reach_s = float(np.max(np.abs((self.low_s[:num], self.high_s[:num]))))
            # Over the whole reach a period that is half a step off strays by an eighth of the tightest bracket.
            finer_s = self.half_s * self.shortest_s / reach_s / 4
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
            family = self._fitting(periods_s, num, slack_s=finer_s * reach_s / self.shortest_s)
            if num == len(self.low_s) or not len(family.period_s):
                return family.split(step_s) if len(family.period_s) else []
            periods_s, num = family.period_s, min(2 * num, len(self.low_s))

    def _fitting(self, periods_s: Column, num: int, slack_s: float) -> _Family:
        """Which periods allow a phase, by the first ``num`` brackets and the quiet spans among them."""
        low_s, high_s = self.low_s[:num], self.high_s[:num]
        near = (self.quiet_start_s > low_s.min()) & (self.quiet_end_s < high_s.max())
        quiet = (self.quiet_start_s[near], self.quiet_end_s[near])
        return _Family(*_energy.fitting_periods(periods_s, (low_s, high_s), quiet, self.half_s, slack_s))
