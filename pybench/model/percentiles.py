"""Percentiles of few or many values: one definition for worker and host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


def percentiles(ordered: Sequence[float], percents: tuple[float, ...]) -> list[float]:
    """Those percentiles of values in order, interpolated between the two nearest, in the values' unit.

    Definition 7 of R. Hyndman and Y. Fan (The American Statistician 50(4), 1996), as numpy's default. Raises
    ``IndexError`` without any value.
    """
    return [
        ordered[below] + (ordered[above] - ordered[below]) * weight
        for below, above, weight in _places(len(ordered), percents)
    ]


@lru_cache
def _places(count: int, percents: tuple[float, ...]) -> tuple[tuple[int, int, float], ...]:
    """For each percentile of so many values in order: the two nearest, and the weight of the second.

    Most steps have few values, for which numpy's call costs more than the work.
    """
    places = [(count - 1) * percent / 100 for percent in percents]
    return tuple((int(place), min(int(place) + 1, count - 1), place % 1) for place in places)
