"""When a row's level changed: a change-point test over its nights.

The nights are split where two means fit best, and split again within the later part, as long as each part has four
nights and the t statistic of a split is beyond chance over all splits tried (Bonferroni). The night of a change has the
likelihood interval of its place: every split whose sum of squares is within what chance adds (chi-squared, one degree).
This is binary segmentation (L. Vostrikova, Soviet Mathematics Doklady 24, 1981) from the newest night backwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pybench.compute.student_t import upper_tail

MIN_PART = 4
"""Nights on each side of a change: fewer are outliers."""
P_VALUE = 1e-5
"""Of a split, over all splits of a row: a change stays in the history, and a false one would be shown every night."""
_SAME = 1e-9
_CHI_SQUARED_95 = 3.84


@dataclass(frozen=True)
class Split:
    """A change of level before the value at ``place``, which lies between ``first`` and ``last``.

    ``before`` and ``after`` are the means on both sides.
    """

    place: int
    first: int
    last: int
    before: float
    after: float


def best_split(values: Sequence[float]) -> Split | None:
    """The most likely single change, whether or not it is beyond chance; ``None`` with too few values."""
    squares = _sums_of_squares(values)
    if not squares:
        return None
    place = min(squares, key=squares.__getitem__)
    limit = squares[place] * (1 + _CHI_SQUARED_95 / max(len(values) - 2, 1))
    likely = [one for one, square in squares.items() if square <= limit]
    return Split(place, min(likely), max(likely), _mean(values[:place]), _mean(values[place:]))


def last_change(values: Sequence[float], p_value: float = P_VALUE) -> Split | None:
    """The newest change that is beyond chance, its sides reaching to the changes next to it."""
    found = _significant(values, p_value)
    if found is None:
        return None
    later = last_change(values[found.place :], p_value)
    if later is None:
        return found
    start = found.place
    return Split(start + later.place, start + later.first, start + later.last, later.before, later.after)


def _significant(values: Sequence[float], p_value: float) -> Split | None:
    found = best_split(values)
    if found is None:
        return None
    num = len(values)
    before, after = found.place, num - found.place
    if abs(found.after - found.before) < _SAME:
        return None
    residual = max(_sums_of_squares(values)[found.place] / (num - 2), _SAME**2)
    t = abs(found.after - found.before) / math.sqrt(residual * (1 / before + 1 / after))
    tried = num - 2 * MIN_PART + 1
    return found if 2 * upper_tail(t, num - 2) * tried <= p_value else None


def _sums_of_squares(values: Sequence[float]) -> dict[int, float]:
    """Sum of squares about the means of both parts, by the place of the split."""
    # Sums of deviations: those of large values would lose digits.
    centre = _mean(values) if values else 0.0
    shifted = [value - centre for value in values]
    sums, squares = [*accumulate(shifted)], sum(value * value for value in shifted)
    total, num = sums[-1] if sums else 0.0, len(values)
    return {
        place: max(squares - sums[place - 1] ** 2 / place - (total - sums[place - 1]) ** 2 / (num - place), 0.0)
        for place in range(MIN_PART, num - MIN_PART + 1)
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
