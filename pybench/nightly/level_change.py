"""When a row's level changed: a change-point test over its nights.

The nights are split where two means fit best, and split again within the later part, as long as each part has four
nights and the t statistic of a split is beyond chance over all splits tried (Bonferroni). The night of a change has the
likelihood interval of its place: every split whose sum of squares is within what chance adds (chi-squared, one degree).
Where nights resemble the ones before them, their means scatter more than independent ones: the variance is raised by
(1 + r) / (1 - r), r being the row's lag-1 correlation, and has fewer degrees of freedom.
A change that is known otherwise, by a look at the newest nights, may be as new as the last night: no four nights after
it are needed.
This is binary segmentation (L. Vostrikova, Soviet Mathematics Doklady 24, 1981) from the newest night backwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean

from pybench.core.statistics.distributions import upper_tail
from pybench.nightly.baseline import freedom_share

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

    @property
    def is_lower(self) -> bool:
        """Whether the later level is the lower one."""
        return self.after < self.before

    def behind(self, start: int) -> Split:
        """The same split of values that have so many others before them."""
        return replace(self, place=start + self.place, first=start + self.first, last=start + self.last)

    def at(self, nights: Sequence[int]) -> Split:
        """The same split by night, of values that are those of so many nights."""
        return replace(self, place=nights[self.place], first=nights[self.first], last=nights[self.last])


def newest_change(values: Sequence[float], *, is_lower: bool) -> Split | None:
    """When the last value's level began, which is known to be lower, or higher, than before; ``None``: not known."""
    if (lasting := lasting_change(values, is_lower=is_lower)) is not None:
        return lasting
    found = last_change(values)
    if found is not None and found.is_lower == is_lower:
        # Parts of four nights put a change that is newer too early.
        found = last_change(values[: found.place])
    start = found.place if found is not None else 0
    level = values[start:]
    squares = {
        place: square
        for place, square in _sums_of_squares(level, least_after=1).items()
        if (fmean(level[place:]) < fmean(level[:place])) == is_lower
    }
    split = _best_split(level, squares)
    return split and split.behind(start)


def lasting_change(values: Sequence[float], *, is_lower: bool) -> Split | None:
    """The newest change where it is beyond chance, of that direction, and has more nights than a part needs."""
    found = last_change(values)
    is_lasting = found is not None and found.is_lower == is_lower and len(values) - found.place > MIN_PART
    return found if is_lasting else None


def _best_split(values: Sequence[float], squares: Mapping[int, float]) -> Split | None:
    """The most likely one of some splits, whether or not it is beyond chance; ``None`` of none."""
    if not squares:
        return None
    place = min(squares, key=squares.__getitem__)
    limit = squares[place] * (1 + _CHI_SQUARED_95 / max(len(values) - 2, 1))
    likely = [one for one, square in squares.items() if square <= limit]
    return Split(place, min(likely), max(likely), fmean(values[:place]), fmean(values[place:]))


def last_change(values: Sequence[float], correlation: float = 0.0) -> Split | None:
    """The newest change that is beyond chance, its sides reaching to the changes next to it."""
    found = _significant(values, correlation)
    if found is None:
        return None
    later = last_change(values[found.place :], correlation)
    return found if later is None else later.behind(found.place)


def _significant(values: Sequence[float], correlation: float) -> Split | None:
    squares = _sums_of_squares(values)
    found = _best_split(values, squares)
    if found is None:
        return None
    num = len(values)
    before, after = found.place, num - found.place
    if abs(found.after - found.before) < _SAME:
        return None
    residual = max(squares[found.place] / (num - 2), _SAME**2)
    residual *= (1 + correlation) / (1 - correlation)
    t = abs(found.after - found.before) / math.sqrt(residual * (1 / before + 1 / after))
    tried = num - 2 * MIN_PART + 1
    return found if 2 * upper_tail(t, (num - 2) * freedom_share(correlation)) * tried <= P_VALUE else None


def _sums_of_squares(values: Sequence[float], least_after: int = MIN_PART) -> dict[int, float]:
    """Sum of squares about the means of both parts, by the place of the split."""
    # Sums of deviations: those of large values would lose digits.
    centre = fmean(values) if values else 0.0
    shifted = [value - centre for value in values]
    sums, squares = [*accumulate(shifted)], sum(value * value for value in shifted)
    total, num = sums[-1] if sums else 0.0, len(values)
    return {
        place: max(squares - sums[place - 1] ** 2 / place - (total - sums[place - 1]) ** 2 / (num - place), 0.0)
        for place in range(MIN_PART, num - least_after + 1)
    }
