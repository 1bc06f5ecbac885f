"""The nights that a row is judged by: which are admitted, their centre, and how far nights scatter.

Values are logarithms, turned so that higher is better. A baseline excludes a night beyond four robust standard
deviations and the smallest effect, and a night whose mean of the last four is. A change never becomes normal without an
acceptance by hand. A row of which many nights were off, and over later, has several levels: all its nights are
admitted, and none is pulled in. After an acceptance the centre begins anew and the spread stays: it judges the first
nights of the new level. The spread covers the admitted nights, with distant values pulled in. Its variance shrinks
towards the variances of the metric's other rows. Nights resemble the nights before them: the lag-1 correlation of each
row widens every error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean, linear_regression, median

from pybench.core.statistics.distributions import variance_ratio_tail
from pybench.core.statistics.memory import variance_inflation
from pybench.core.statistics.spread import (
    LEAST_SD,
    MIN_POINTS,
    SD_OF_MAD,
    Variance,
    pooled_variance,
    pulled_in,
    robust_sd,
)
from pybench.core.statistics.units import Others, moderated, variance_of_mean
from pybench.model.figures import FigureKey, SmallestEffects

MIN_NIGHTS = 8
"""With fewer nights the spread between them is not known."""
WINDOW = 60
"""Nights that a baseline has at most."""
RECENT = 4
"""Nights whose mean is looked at together: a change that one night does not show."""
MOST_CORRELATION = 0.9
"""A row whose nights resemble each other more shows no change at all."""
_NEWEST, _NO_GROWTH = 10, 0.001
"""Number of newest nights whose spread is compared with the earlier one; chance that an equal spread looks larger."""
_OUT_SDS = 4.0
_MOST_OFF = 0.25
"""Largest share of nights that are off by accident; with more, a row has several levels (docs/nightly.md)."""
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

    @cached_property
    def recent(self) -> dict[int, float]:
        """Values of the present level by night, tonight's last, without nights apart."""
        known = {n: value for n, value in enumerate(self.values) if value is not None and n not in self.apart}
        return parted(known, self.start)[1]


@dataclass(frozen=True)
class Baseline:
    """Centre of the present level over ``num_nights``, and the spread of all levels: ``sd`` with ``freedom``.

    ``level`` are the admitted values of the present level by night, ``earlier`` those of the nights before it.
    ``correlation`` is that of a night with the one before it, at least 0.
    """

    sd: float
    freedom: float
    level: Mapping[int, float]
    earlier: Mapping[int, float]
    correlation: float = 0.0

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
        level = {n: value for n, value in self.level.items() if n < night}
        return replace(self, level=level) if level else None

    @cached_property
    def others(self) -> Others:
        """The nights of the level, which new nights are compared with."""
        return Others(self.centre, self.sd**2, self.freedom, self.num_nights, self.correlation)


def parted(values: Mapping[int, float], start: int) -> tuple[dict[int, float], dict[int, float]]:
    """Values by night: those before ``start``, and those since."""
    before = {night: value for night, value in values.items() if night < start}
    return before, {night: value for night, value in values.items() if night >= start}


def admitted(nights: Nights, smallest: float) -> dict[int, float]:
    """Values of the nights before the last that are examples of their level, by night."""
    examples: dict[int, float] = {}
    level: list[float] = []
    recent: list[float]
    known = {n: v for n, v in enumerate(nights.values[:-1]) if v is not None and n not in nights.apart}
    # Spread from one night to the next: a change of level does not widen it, and it is known from all nights.
    steps = [abs(later - earlier) for earlier, later in pairwise(known.values())]
    least_sd = max(_SD_OF_STEP * median(steps) if steps else 0.0, LEAST_SD)
    for of_level in parted(known, nights.start):
        is_spread_known = len(level) >= MIN_NIGHTS
        level, recent = [], []
        for night, value in of_level.items():
            recent = [*recent, value][-RECENT:]
            if len(level) >= MIN_NIGHTS:
                is_example = _is_example(value, recent, level[-WINDOW:], smallest, least_sd)
            else:
                # The centre of the first nights of an accepted level is not known well yet.
                reach = max(smallest, _OUT_SDS * least_sd * math.sqrt(1 + 1 / max(len(level), 1)))
                is_example = not (level and is_spread_known) or abs(value - median(level)) <= reach
            if is_example:
                level.append(value)
                examples[night] = value
    known, _ = parted(known, max(examples, default=0))
    several = len(known.keys() - examples.keys()) > _MOST_OFF * len(known)
    return dict(sorted((known | examples).items())) if several else examples


def _is_example(
    value: float, recent: Sequence[float], level: Sequence[float], smallest: float, least_sd: float
) -> bool:
    centre, sd = median(level), max(robust_sd(level), least_sd)
    if abs(value - centre) > max(smallest, _OUT_SDS * sd):
        return False
    return len(recent) < RECENT or abs(fmean(recent) - centre) <= max(smallest, _OUT_SDS * sd / math.sqrt(RECENT))


def baselines(rows: Mapping[FigureKey, Nights], effects: SmallestEffects) -> dict[FigureKey, Baseline]:
    """Baseline of each row of which enough nights are known; rows of one metric share their spread."""
    by_row: dict[FigureKey, Baseline] = {}
    for metric in {row.metric: None for row in rows}:
        of_metric = {row: nights for row, nights in rows.items() if row.metric == metric}
        by_row.update(_of_one_metric(of_metric, math.log1p(effects.of(metric))))
    return by_row


def _of_one_metric(rows: Mapping[FigureKey, Nights], smallest: float) -> Iterator[tuple[FigureKey, Baseline]]:
    levels = {row: _levels(nights, smallest) for row, nights in rows.items()}
    spreads = {row: _own_spread(pair) for row, pair in levels.items()}
    shrunk = moderated({row: spread for row, spread in spreads.items() if spread is not None})
    residuals = {
        row: [residuals_about_line([*level.values()]) for level in levels[row] if len(level) >= MIN_NIGHTS]
        for row in shrunk
    }
    alike, growth = correlations(residuals), growth_of_spread(residuals)
    for row, (variance, freedom) in shrunk.items():
        earlier, level = levels[row]
        if level:
            num, r = len(earlier) + len(level), alike.get(row, 0.0)
            # The variance of correlated nights about their own mean is too low, and has fewer degrees of freedom.
            true = variance * growth * (variance_inflation(num, r) / (num * variance_of_mean(num, r)))
            yield row, Baseline(math.sqrt(true), freedom * freedom_share(r), level, earlier, r)


def growth_of_spread(rows: Mapping[FigureKey, Sequence[Sequence[float]]]) -> float:
    """Variance of the newest nights over that of all nights, pooled over rows; 1 unless it is larger beyond chance.

    ``rows`` are residuals, each level by itself. Each row counts by its own variance.
    """
    newest, before = [], []
    for levels in rows.values():
        values = [value for level in levels for value in level]
        if len(values) >= 2 * _NEWEST and (variance := fmean(value * value for value in values)):
            squares = [value * value / variance for value in values]
            newest += squares[-_NEWEST:]
            before += squares[:-_NEWEST]
    if not newest or variance_ratio_tail(fmean(newest) / fmean(before), len(newest), len(before)) > _NO_GROWTH:
        return 1.0
    return fmean(newest)


def correlations(rows: Mapping[FigureKey, Sequence[Sequence[float]]]) -> dict[FigureKey, float]:
    """Lag-1 correlation of the nights of each row, 0 to 0.9, from the residuals of each level about a straight line.

    A line keeps a slow drift, which is a change, out of the residuals. The estimate of n residuals is too low by
    (2 + 4 r) / n (M. Kendall, Biometrika 41, 1954, with a trend) and corrected for it. Rows of a metric share what they
    show: Fisher's z of each row is shrunk towards their mean by what rows differ beyond chance.
    """
    estimates: dict[FigureKey, tuple[float, float]] = {}
    for row, residuals in rows.items():
        num = sum(map(len, residuals))
        square = math.fsum(value * value for level in residuals for value in level)
        if num and square > 0:
            lagged = math.fsum(a * b for level in residuals for a, b in pairwise(level)) / square
            corrected = (num * lagged + 2) / (num - 4)
            estimates[row] = math.atanh(min(max(corrected, -MOST_CORRELATION), MOST_CORRELATION)), 1 / (num - 4)
    if not estimates:
        return {}
    mean = fmean(z for z, _ in estimates.values())
    chance = fmean(variance for _, variance in estimates.values())
    beyond = max(fmean((z - mean) ** 2 for z, _ in estimates.values()) - chance, 0.0)
    if len(estimates) < MIN_POINTS:
        mean, beyond = 0.0, chance
    return {
        row: max(math.tanh(mean + (z - mean) * beyond / (beyond + variance)), 0.0)
        for row, (z, variance) in estimates.items()
    }


def residuals_about_line(values: Sequence[float]) -> list[float]:
    """Residuals of a least-squares line; outliers are pulled in first."""
    pulled = pulled_in(values)
    slope, intercept = linear_regression(range(len(pulled)), pulled)
    return [value - intercept - slope * night for night, value in enumerate(pulled)]


def _own_spread(levels: Sequence[Mapping[int, float]]) -> Variance | None:
    """Variance about each level's own mean; ``None`` with too few nights."""
    if sum(map(len, levels)) < MIN_NIGHTS:
        return None
    variance, freedom = pooled_variance(_without_accidents([*level.values()]) for level in levels if level)
    return (variance, freedom) if freedom >= MIN_NIGHTS - 2 else None


def _without_accidents(level: Sequence[float]) -> Sequence[float]:
    """Values with distant ones pulled in; unchanged where many are."""
    pulled = pulled_in(level)
    return pulled if sum(map(float.__ne__, level, pulled)) <= _MOST_OFF * len(level) else level


def _levels(nights: Nights, smallest: float) -> tuple[dict[int, float], dict[int, float]]:
    """The newest admitted values before and since the last acceptance, by night."""
    before, since = ([*part.items()] for part in parted(admitted(nights, smallest), nights.start))
    return dict(before[-WINDOW:]), dict(since[-WINDOW:])


def freedom_share(correlation: float) -> float:
    """Degrees of freedom of the variance of correlated values over those of independent ones."""
    return (1 - correlation**2) / (1 + correlation**2)
