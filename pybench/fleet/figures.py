"""Every figure of a unit, a node or a GPU, against those of the fleet's other units.

Values are logarithms, turned so that higher is better. A unit is held against the mean of the others, values far off
pulled in, with their standard deviation: a prediction interval of one more. Variances are shrunk towards those of the
fleet's other figures (:mod:`pybench.core.statistics.spread`). Figures of one group are taken together, so that one
cause counts once; over all units and groups the share of false discoveries is controlled.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Generic, TypeVar

from pybench.core.statistics.false_discovery import FALSE_DISCOVERIES, detectable_fraction, joint_probability
from pybench.core.statistics.spread import (
    LEAST_SD,
    MIN_POINTS,
    Variance,
    moderated_variance,
    prior,
    pulled_in,
    variance_of,
)
from pybench.core.statistics.student_t import upper_tail
from pybench.fleet.groups import group_of
from pybench.model.figures import Row

MIN_UNITS = 3
"""Of two that differ nobody knows which is usual."""
_MANY = 32
"""From so many units on, one of them changes the distribution by too little to be left out of it."""

Unit = TypeVar("Unit", bound=Hashable)


@dataclass(frozen=True)
class Reading:
    """One figure of one unit: a logarithm for each run, and the standard error that its own attempts show."""

    runs: tuple[float, ...]
    error: float = 0.0

    @property
    def value(self) -> float:
        """Mean over its runs."""
        return fmean(self.runs)


@dataclass(frozen=True)
class Distance:
    """How far a unit lies above the others (negative: below), and the probability of this low a figure by chance."""

    deviation: float
    p: float
    by_run: tuple[float, ...]


@dataclass(frozen=True)
class Figures(Generic[Unit]):
    """Readings of every unit by row. Units ``apart`` are judged, and are no example for the others."""

    rows: Mapping[Row, Mapping[Unit, Reading]]
    apart: frozenset[Unit] = frozenset()

    @cached_property
    def judged(self) -> Mapping[Row, Mapping[Unit, Reading]]:
        """Rows that enough units have."""
        return {row: units for row, units in self.rows.items() if len(units) >= MIN_UNITS}

    @cached_property
    def distances(self) -> Mapping[Row, Mapping[Unit, Distance]]:
        """Of every unit in every judged row."""
        return {row: self._row(units) for row, units in self.judged.items()}

    @cached_property
    def probabilities(self) -> Mapping[tuple[Unit, str], float]:
        """Of each unit's group of figures by chance."""
        found: dict[tuple[Unit, str], dict[Row, float]] = {}
        for row, units in self.distances.items():
            for unit, distance in units.items():
                found.setdefault((unit, group_of(row.metric) or row.metric), {})[row] = distance.p
        return {key: joint_probability(rows) for key, rows in found.items()}

    def has(self, group: str) -> bool:
        """Whether any figure of a group is judged."""
        return any(group_of(row.metric) == group for row in self.judged)

    def lowest(self, unit: Unit, group: str) -> tuple[Row, Distance]:
        """The row of a group that is least likely by chance."""
        rows = {row: units[unit] for row, units in self.distances.items() if unit in units}
        own = {row: distance for row, distance in rows.items() if group_of(row.metric) == group}
        return min(own.items(), key=lambda one: (one[1].p, one[1].deviation))

    def spread(self, group: str) -> float:
        """Standard deviation between units of a group: that of its median row."""
        return median(math.sqrt(self._shrunk[row][0]) for row in self.judged if group_of(row.metric) == group)

    def detectable(self, group: str) -> float:
        """The shortfall that is found with 95 % power if it is the only one among all units and groups."""
        level = FALSE_DISCOVERIES / max(len(self.probabilities), 1)
        return median(self._reach(row, level) for row in self.judged if group_of(row.metric) == group)

    def _reach(self, row: Row, level: float) -> float:
        variance, freedom = self._shrunk[row]
        return detectable_fraction(level, math.sqrt(variance * (1 + 1 / (len(self.judged[row]) - 1))), freedom)

    @cached_property
    def _shrunk(self) -> Mapping[Row, Variance]:
        """Variance between units of each row, moderated by the other rows'."""
        own = self._own_spreads
        if len(own) < MIN_POINTS:
            return own
        return {row: moderated_variance(spread, self._prior) for row, spread in own.items()}

    @cached_property
    def _prior(self) -> Variance:
        own = self._own_spreads.values()
        if len(own) < MIN_POINTS:
            return 0.0, 0.0
        return prior([variance for variance, _ in own], [freedom for _, freedom in own])

    @cached_property
    def _own_spreads(self) -> Mapping[Row, Variance]:
        return {row: spread_of([*self._examples(units).values()]) for row, units in self.judged.items()}

    def _examples(self, units: Mapping[Unit, Reading]) -> dict[Unit, float]:
        """Values of the units that the others are held against."""
        found = {unit: one.value for unit, one in units.items() if unit not in self.apart}
        return found if len(found) >= MIN_UNITS else {unit: one.value for unit, one in units.items()}

    def _row(self, units: Mapping[Unit, Reading]) -> dict[Unit, Distance]:
        values = self._examples(units)
        whole = pulled_in([*values.values()])
        return {
            unit: self._distance(one, whole if len(values) > _MANY or unit not in values else _without(values, unit))
            for unit, one in units.items()
        }

    def _distance(self, own: Reading, others: Sequence[float]) -> Distance:
        centre = fmean(others)
        variance, freedom = moderated_variance(spread_of(others), self._prior)
        error = math.sqrt(max(variance, own.error**2) * (1 + 1 / len(others)))
        return Distance(
            own.value - centre,
            upper_tail((centre - own.value) / error, freedom),
            tuple(value - centre for value in own.runs),
        )


def _without(values: Mapping[Unit, float], unit: Unit) -> list[float]:
    return pulled_in([value for other, value in values.items() if other != unit])


def spread_of(values: Sequence[float]) -> Variance:
    """Variance of values, those far off pulled in, at least that of :data:`LEAST_SD`."""
    return max(variance_of(pulled_in(values)), LEAST_SD**2), len(values) - 1
