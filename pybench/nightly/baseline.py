"""The nights that a row is judged by: which are admitted, their centre, and how far nights scatter.

Values are logarithms, turned so that higher is better. A night enters a row's baseline unless it, or the mean of the
last four, lies beyond four robust standard deviations and the smallest effect: what has changed never becomes normal by
itself, it is accepted by hand. After an acceptance the centre begins anew, and the spread is kept: the first nights of
the new level are held against those before them by it. The spread is that of the admitted nights, values far off pulled
in, its variance shrunk towards those of the metric's other rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median

from pybench.core.statistics.distributions import upper_tail
from pybench.core.statistics.spread import (
    LEAST_SD,
    MIN_POINTS,
    SD_OF_MAD,
    Variance,
    moderated_variance,
    pooled_variance,
    prior,
    pulled_in,
    robust_sd,
)
from pybench.model.figures import Row

MIN_NIGHTS = 8
"""With fewer nights the spread between them is not known."""
WINDOW = 60
"""Nights that a baseline has at most."""
RECENT = 4
"""Nights whose mean is looked at together: a change that one night does not show."""
_OUT_SDS = 4.0
_SD_OF_STEP = SD_OF_MAD / math.sqrt(2)
"""A step is the difference of two nights."""


@dataclass(frozen=True)
class Nights:
    """One row's values by night, the last one being looked at; ``None`` where it was not measured.

    ``start`` is the first night of the present level. ``apart`` are nights that are no example; a level ``is_off`` that
    has no nights but those on which the host was off.
    """

    values: tuple[float | None, ...]
    start: int = 0
    apart: frozenset[int] = frozenset()
    is_off: bool = False

    def set_apart(self, off: frozenset[int]) -> Nights:
        """The same without nights on which the host was off, unless the present level has no others."""
        level = {night for night, value in enumerate(self.values[:-1]) if value is not None and night >= self.start}
        is_off = bool(level) and level <= off
        return replace(self, apart=off - level if is_off else off, is_off=is_off)

    def recent(self, num: int) -> dict[int, float]:
        """The last values of the present level by night, tonight's last; fewer where there are not so many."""
        known = [(night, value) for night, value in enumerate(self.values) if value is not None and night >= self.start]
        return dict(known[-num:])


@dataclass(frozen=True)
class Baseline:
    """Centre of the present level over ``num_nights``, and the spread of all levels: ``sd`` with ``freedom``.

    ``level`` are the admitted values of the present level by night, ``earlier`` those of the nights before it.
    """

    sd: float
    freedom: float
    level: Mapping[int, float]
    earlier: Mapping[int, float]

    @property
    def num_nights(self) -> int:
        """Nights of the present level."""
        return len(self.level)

    @cached_property
    def centre(self) -> float:
        """Mean of the level, values far off pulled in."""
        return fmean(pulled_in([*self.level.values()]))

    @cached_property
    def earlier_centre(self) -> float | None:
        """The same of the nights before the level; ``None`` without any."""
        return fmean(pulled_in([*self.earlier.values()])) if self.earlier else None

    def before(self, night: int) -> Baseline | None:
        """The same without that night and later ones; ``None`` where nothing of the level is left."""
        level = {one: value for one, value in self.level.items() if one < night}
        return replace(self, level=level) if level else None

    def p_lower(self, values: Sequence[float]) -> float:
        """Probability of a mean this low, or lower, of so many nights that did not change."""
        return upper_tail((self.centre - fmean(values)) / self.error(len(values)), self.freedom)

    def error(self, num: int) -> float:
        """Standard error of the mean of so many nights about the centre."""
        return self.sd * math.sqrt(1 / num + 1 / self.num_nights)


def admitted(nights: Nights, smallest: float) -> dict[int, float]:
    """Values of the nights before the last that are examples of their level, by night."""
    found: dict[int, float] = {}
    level: list[float] = []
    recent: list[float] = []
    is_spread_known = False
    least_sd = max(_sd_of_steps(nights), LEAST_SD)
    for night, value in enumerate(nights.values[:-1]):
        if night == nights.start:
            is_spread_known = len(level) >= MIN_NIGHTS
            level, recent = [], []
        if value is None or night in nights.apart:
            continue
        recent = [*recent, value][-RECENT:]
        if len(level) >= MIN_NIGHTS:
            is_example = _is_example(value, recent, level[-WINDOW:], smallest, least_sd)
        else:
            is_example = not (level and is_spread_known) or _is_like_few(value, level, smallest, least_sd)
        if is_example:
            level.append(value)
            found[night] = value
    return found


def _sd_of_steps(nights: Nights) -> float:
    """Spread from one night to the next: a change of level does not widen it, and it is known from all nights."""
    known = [v for night, v in enumerate(nights.values[:-1]) if v is not None and night not in nights.apart]
    steps = [abs(later - earlier) for earlier, later in pairwise(known)]
    return _SD_OF_STEP * median(steps) if steps else 0.0


def _is_example(
    value: float, recent: Sequence[float], level: Sequence[float], smallest: float, least_sd: float
) -> bool:
    centre, sd = median(level), max(robust_sd(level), least_sd)
    if abs(value - centre) > max(smallest, _OUT_SDS * sd):
        return False
    return len(recent) < RECENT or abs(fmean(recent) - centre) <= max(smallest, _OUT_SDS * sd / math.sqrt(RECENT))


def _is_like_few(value: float, level: Sequence[float], smallest: float, sd: float) -> bool:
    """Whether a night is like the first ones of an accepted level, whose centre is not known well yet."""
    return abs(value - median(level)) <= max(smallest, _OUT_SDS * sd * math.sqrt(1 + 1 / len(level)))


def baselines(rows: Mapping[Row, Nights], smallest: float) -> dict[Row, Baseline | None]:
    """Baseline of each row of one metric; ``None`` where too few nights are known."""
    examples = {row: admitted(nights, smallest) for row, nights in rows.items()}
    own = {row: _own_spread(rows[row], found) for row, found in examples.items()}
    shrunk = _shrunk({row: spread for row, spread in own.items() if spread is not None})
    return {row: _baseline(rows[row], examples[row], shrunk.get(row)) for row in rows}


def _own_spread(nights: Nights, examples: Mapping[int, float]) -> Variance | None:
    """Variance about each level's own mean; ``None`` with too few nights."""
    levels = [[*level.values()] for level in _levels(nights, examples) if level]
    if sum(map(len, levels)) < MIN_NIGHTS:
        return None
    variance, freedom = pooled_variance(map(pulled_in, levels))
    return (variance, freedom) if freedom >= MIN_NIGHTS - 2 else None


def _levels(nights: Nights, examples: Mapping[int, float]) -> tuple[dict[int, float], dict[int, float]]:
    """The newest values before and since the last acceptance, by night."""
    before = [(night, value) for night, value in examples.items() if night < nights.start]
    since = [(night, value) for night, value in examples.items() if night >= nights.start]
    return dict(before[-WINDOW:]), dict(since[-WINDOW:])


def _shrunk(own: Mapping[Row, Variance]) -> dict[Row, Variance]:
    """Variances moderated by the other rows', where there are enough of them."""
    least = LEAST_SD**2
    found = {row: (max(variance, least), freedom) for row, (variance, freedom) in own.items()}
    if len(own) < MIN_POINTS:
        return found
    common = prior([variance for variance, _ in found.values()], [freedom for _, freedom in found.values()])
    return {row: moderated_variance(spread, common) for row, spread in found.items()}


def _baseline(nights: Nights, examples: Mapping[int, float], spread: Variance | None) -> Baseline | None:
    earlier, level = _levels(nights, examples)
    if spread is None or not level:
        return None
    variance, freedom = spread
    return Baseline(math.sqrt(variance), freedom, level, earlier)
