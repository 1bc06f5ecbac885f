"""Looks at a row's newest nights, one to four of them, and the night on which its level changed.

A look is tonight alone, or the mean of the last two to four nights. Earlier nights of the row explain it where single
attempts had a second speed. For example a decode on an H100 took 12.22 ms for a token in sixteen equal runs and 11.65
ms in four (docs/results/h200.md). The median of three attempts then has the rarer speed in some nights.

A change of level is binary segmentation (L. Vostrikova, Soviet Mathematics Doklady 24, 1981) from the newest night
backwards. Nights are split where two means fit best, then the later part is split again. Each part has four nights or
more, and the t statistic of each split is beyond chance over all splits tried (Bonferroni). The night of a change
has the likelihood interval of its place: every split whose sum of squares is within what chance adds (chi-squared, one
degree). Correlated nights raise the variance by (1 + r) / (1 - r), r being the row's lag-1 correlation, and lower its
degrees of freedom. A change that a look shows may be as new as the last night: it needs no four nights after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean, median

from pybench.core.statistics.distributions import at_least, upper_tail
from pybench.core.statistics.false_discovery import FALSE_DISCOVERIES, discoveries
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import LEAST_SD, robust_sd
from pybench.model.figures import FigureKey
from pybench.nightly.baseline import MIN_NIGHTS, RECENT, Baseline, Nights, freedom_share
from pybench.nightly.values import LevelChange

_LOOKS = 2.2
"""Looks at one to four nights are as good as so many independent ones (tests/benchmarks/test_gate.py)."""
_MOST_SDS = 4.0
"""An earlier night counts for no more: one outlier makes no mean."""
_AS_FAR, _OVER = 0.75, 0.5
"""Shares of a deviation: from the first on earlier nights were as far off; below the second such nights were over."""
_MOST_SHARE = 1.2
"""An earlier night counts for no more than this times the present's worst: one outlier makes no mean of several."""
MOST_NIGHTS_AS_FAR = 0.025
"""Above this share of earlier nights with an equal deviation, a rerun of the same night decides nothing."""
SECOND_SPEED = "single attempts of earlier nights were as far off, too"
"""Of a row that passes for it."""
_CHANCE = 0.001
"""Attempts that are drawn no more often by chance show a change."""
_LEAST_ATTEMPTS = 3
"""With fewer a night's median is that of both speeds, or of one attempt."""
_LEAST_NIGHTS = 2
"""Nights of the level with the second speed: one bad attempt is none."""


@dataclass(frozen=True)
class Look:
    """The look that shows the most: the mean deviation of some nights, and its probability over all looks.

    Deviations are logarithms, ``tonight`` of the last night alone, ``most`` the largest of a night as a share of the
    mean. ``nights`` are places in the row's values.
    """

    deviation: float
    tonight: float
    nights: tuple[int, ...]
    p: float
    most: float = 1.0


def look_at(nights: Nights, baseline: Baseline, shift: float, *, worse: bool) -> Look:
    """Look on one side. ``shift`` is what all points share tonight."""
    tonight = len(nights.values) - 1
    recent, places = nights.recent, [*nights.recent][-RECENT:]
    looks: list[Look] = []
    for num in range(1, len(places) + 1):
        seen = places[-num:]
        base = baseline if num == 1 else baseline.before(seen[0])
        if base is None or (num > 1 and base.num_nights < MIN_NIGHTS):
            break
        now = recent[tonight] - shift
        reach = _MOST_SDS * base.sd
        values = [*(min(max(recent[n], base.centre - reach), base.centre + reach) for n in seen[:-1]), now]
        lower = base.others.p_lower(fmean(values), num)
        p = lower if worse else 1 - lower
        mean = fmean(values) - base.centre
        most = max(abs(value - base.centre) for value in values) / abs(mean) if mean else 1.0
        looks.append(Look(mean, now - base.centre, tuple(seen), min(1.0, _LOOKS * p), most))
    return min(looks, key=lambda each: each.p)


def _times_as_far(offs: Sequence[float], num: int, most: float) -> list[int]:
    """Places of the last of ``num`` successive nights whose mean was 1 or more, each time that began anew.

    ``offs`` are earlier nights as shares of a deviation, whose own nights have ``most`` at most. An equal deviation of
    the last nights is part of the present one.
    """
    if most > _AS_FAR * num:  # one night makes the mean
        offs, num, most = [off / most for off in offs], 1, 1.0
    known = [min(off, _MOST_SHARE * most) for off in offs]
    while known and known[-1] >= _OVER:
        known.pop()
    places: list[int] = []
    night, is_over = 0, True
    while night + num <= len(known):
        if is_over and fmean(known[night : night + num]) >= 1:
            night, is_over = night + num, False
            places.append(night - 1)
        else:
            is_over = is_over or known[night] < _OVER
            night += 1
    return places


def nights_as_far(row: Nights, look: Look, rows: Iterable[Nights]) -> tuple[int, int]:
    """Number of earlier nights on which any of ``rows`` had a deviation like ``row``'s that later ended; number of all.

    Each row counts in its own robust spread, which such nights do not widen.
    """
    size, nights, known = 0.0, set[int](), set[int]()
    for each in (row, *rows):
        earlier = {night: value for night, value in each.recent.items() if night < look.nights[0]}
        if not earlier:
            continue
        centre, sd = median(earlier.values()), max(robust_sd([*earlier.values()]), LEAST_SD)
        size = size or -look.deviation / sd
        offs = [(centre - value) / sd / size for value in earlier.values()]
        nights |= {[*earlier][place] for place in _times_as_far(offs, len(look.nights), look.most)}
        known |= earlier.keys()
    return len(nights), len(known)


def flagged(looks: Mapping[FigureKey, Look], smallest: Mapping[str, float]) -> set[FigureKey]:
    """Rows that stand among all and whose change is large enough. A deviation that ended tonight is no change."""
    rows = set[FigureKey]()
    for row in discoveries({row: look.p for row, look in looks.items()}):
        look, least = looks[row], smallest[row.metric]
        lasts = look.tonight * look.deviation > 0 and abs(look.tonight) >= least / 2
        if lasts and abs(look.deviation) >= least:
            rows.add(row)
    return rows


def detectable(baseline: Baseline, num_rows: int) -> float:
    """The change for the worse, a fraction, that one night finds with 95 % power if it is the only one of the rows."""
    return baseline.others.detectable_fraction(FALSE_DISCOVERIES / _LOOKS / max(num_rows, 1))


def is_second_speed(
    nights: Sequence[Sequence[float]], level: Sequence[Sequence[float]], centre: float, deviation: float
) -> bool:
    """Whether chance puts so high a share of ``nights`` as far off as ``deviation``, given the share in ``level``.

    Values are logarithms, ``centre`` is the level's. An attempt of the level has its distance from the median of its
    night. An attempt of ``nights`` has its distance from the best of its night, or from the centre where all are off.
    A shift of a whole night thus changes no distance.
    """
    if any(len(night) < _LEAST_ATTEMPTS for night in nights):
        return False
    sign, far = math.copysign(1.0, deviation), _AS_FAR * abs(deviation)
    # The second speed lies on the side of the deviation, here the lower one.
    turned = [[-sign * value for value in night] for night in nights]
    known = [[-sign * value for value in night] for night in level if len(night) >= _LEAST_ATTEMPTS]
    seen = [max(*night, -sign * centre) - value for night in turned for value in night]
    had = [[median(night) - value >= far for value in night] for night in known]
    if sum(map(any, had)) < _LEAST_NIGHTS:
        return False
    share = sum(map(sum, had)) / sum(map(len, had))
    return at_least(sum(distance >= far for distance in seen), len(seen), share) > _CHANCE


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

    def dated(self, days: Sequence[str], sign: float) -> LevelChange:
        """The same by date, of logarithms that were multiplied by ``sign``; ``days`` has the date of each night."""
        return LevelChange(
            since=days[self.place],
            earliest=days[self.first],
            latest=days[self.last],
            fraction=as_fraction(sign * (self.after - self.before)),
        )

    def at(self, nights: Sequence[int]) -> Split:
        """The same split by night: ``nights`` has the night of each value."""
        return replace(self, place=nights[self.place], first=nights[self.first], last=nights[self.last])


def newest_change(values: Sequence[float], *, is_lower: bool) -> Split | None:
    """When the last value's level began, which is known to be lower, or higher, than before; ``None``: not known."""
    if (lasting := lasting_change(values, is_lower=is_lower)) is not None:
        return lasting
    change = last_change(values)
    if change is not None and change.is_lower == is_lower:
        # Parts of four nights put a change that is newer too early.
        change = last_change(values[: change.place])
    start = change.place if change is not None else 0
    level = values[start:]
    squares = {
        place: square
        for place, square in _sums_of_squares(level, least_after=1).items()
        if (fmean(level[place:]) < fmean(level[:place])) == is_lower
    }
    split = _best_split(level, squares)
    return split and split.at(range(start, len(values)))


def drift_of(nights: Nights, correlation: float, smallest: float) -> Split | None:
    """The newest change of a row's level beyond chance, by night; ``None`` below ``smallest``, a logarithm."""
    change = last_change([*nights.recent.values()], correlation)
    if change is None or abs(change.after - change.before) < smallest:
        return None
    return change.at([*nights.recent])


def lasting_change(values: Sequence[float], *, is_lower: bool) -> Split | None:
    """The newest change where it is beyond chance, of that direction, and has more nights than a part needs."""
    change = last_change(values)
    is_lasting = change is not None and change.is_lower == is_lower and len(values) - change.place > MIN_PART
    return change if is_lasting else None


def _best_split(values: Sequence[float], squares: Mapping[int, float]) -> Split | None:
    """The most likely one of some splits, whether or not it is beyond chance; ``None`` of none."""
    if not squares:
        return None
    place = min(squares, key=squares.__getitem__)
    limit = squares[place] * (1 + _CHI_SQUARED_95 / max(len(values) - 2, 1))
    likely = [candidate for candidate, square in squares.items() if square <= limit]
    return Split(place, min(likely), max(likely), fmean(values[:place]), fmean(values[place:]))


def last_change(values: Sequence[float], correlation: float = 0.0) -> Split | None:
    """The newest change that is beyond chance, its sides reaching to the changes next to it."""
    squares = _sums_of_squares(values)
    split = _best_split(values, squares)
    if split is None or abs(split.after - split.before) < _SAME:
        return None
    num = len(values)
    before, after = split.place, num - split.place
    residual = max(squares[split.place] / (num - 2), _SAME**2)
    residual *= (1 + correlation) / (1 - correlation)
    t = abs(split.after - split.before) / math.sqrt(residual * (1 / before + 1 / after))
    tried = num - 2 * MIN_PART + 1
    if 2 * upper_tail(t, (num - 2) * freedom_share(correlation)) * tried > P_VALUE:
        return None
    later = last_change(values[split.place :], correlation)
    return split if later is None else later.at(range(split.place, num))


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
