"""Location and interval of a metric, and of ratios, from the attempts' medians.

An attempt's steps share its process and its clock, so their scatter predicts little of the next run: the datum is the
median of an attempt's steps. Intervals are Student's t on the logarithms of those medians, for ratios Welch's with
Satterthwaite's degrees of freedom; of values that are not all positive, on the values themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from pybench.core.statistics.contrast import contrast
from pybench.core.statistics.distributions import quantile, upper_tail
from pybench.core.statistics.spread import Spread
from pybench.model.workloads.settings import LARGEST

Samples = Sequence[Sequence[float]]
"""One sequence of step values for each attempt."""

Interval = tuple[float, float | None, float | None]
"""A value with the ends of its 95 % interval; ``None`` where one attempt shows no spread between runs."""

TAIL = (1 - 0.95) / 2
_FALSE_FLAG = 0.02
_MIN_FOR_OUTLIER = 4
_LONGEST_REACH = math.log(100)
"""In logarithms: such ends have no meaning. The plain interval's upper end is lower (two attempts near zero)."""
# Both of a finite exponential, and of one that stays finite beside the quotient of any four figures.
_MOST_LOGARITHM = 150.0
# Below it a quotient of two figures, or its square, may vanish.
_LEAST = 1 / LARGEST


class NoRatioError(ValueError):
    """A ratio of values with a zero or negative attempt; the message names it."""


def medians(samples: Samples) -> list[float]:
    """The median step of every attempt that has any. Raises ``ValueError`` without any step."""
    values = [float(median(attempt)) for attempt in samples if len(attempt)]
    if not values:
        raise ValueError("no step was measured")
    return values


def logs(samples: Samples) -> list[float]:
    """Logarithms of the attempts' medians. Raises ``NoRatioError`` unless all are positive."""
    values = medians(samples)
    if not _have_logarithms(values):
        raise NoRatioError(f"a ratio needs positive values, found {min(values):g} in an attempt")
    return [math.log(value) for value in values]


def as_fraction(logarithm: float) -> float:
    """A difference of logarithms as a fraction: -0.03 is 3 % less. Beyond any change it stays a number."""
    return math.expm1(min(logarithm, _MOST_LOGARITHM))


def location(samples: Samples) -> float:
    """Geometric mean of the attempts' medians, the arithmetic one where some are not positive."""
    values = medians(samples)
    return _moved(values, fmean(_offsets(values)))


def estimate(samples: Samples, systematic_sd: float = 0.0) -> Interval:
    """Location with its 95 % interval; ``systematic_sd``, of positive values, as in :func:`quotient`."""
    values = medians(samples)
    offsets = _offsets(values)
    spread = contrast([offsets], systematic_sd=systematic_sd)
    if spread is None:
        return _moved(values, fmean(offsets)), None, None
    low, high = spread.interval(TAIL)
    value, least, most = (_moved(values, offset) for offset in (spread.value, low, high))
    if _have_logarithms(values) and high - spread.value > _LONGEST_REACH and (plain := contrast([values])) is not None:
        least, most = 0.0, max(value, min(most, _bounded(plain.interval(TAIL)[1])))
    return value, least, most


def outlying_attempts(samples: Samples) -> tuple[int, ...]:
    """Positions of attempts outside the prediction of the others; at most 2 % of clean points have any.

    Each is held against a t prediction interval of the others, the level shared by all (a deleted residual).
    """
    attempts = medians(samples)
    values = [math.log(value) for value in attempts] if _have_logarithms(attempts) else attempts
    if len(values) < _MIN_FOR_OUTLIER:
        return ()

    def is_outlier(place: int) -> bool:
        others = [value for index, value in enumerate(values) if index != place]
        distance, size = abs(values[place] - fmean(others)), max(1.0, abs(fmean(others)))
        error = stdev(others) * math.sqrt(1 + 1 / len(others))
        if error <= 1e-12 * size:
            return distance > 1e-9 * size
        return upper_tail(distance / error, len(others) - 1) < _FALSE_FLAG / 2 / len(values)

    return tuple(filter(is_outlier, range(len(values))))


def prediction_reach(values: Sequence[float], spread: Spread | None = None) -> float:
    """How far, with 95 % confidence, one more such mean of as many values may be off theirs: t s sqrt(2/n).

    The next run's location is a mean of n attempts, too, not a single one. ``spread`` widens it by two speeds and
    correlated attempts of all points of the metric.
    """
    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return 0.0
    variance, freedom = stdev(values) ** 2, float(len(values) - 1)
    if spread is not None:
        variance, freedom = spread.widened(variance, freedom, len(values))
    return quantile(TAIL, freedom) * math.sqrt(2 * variance / len(values))


def quotient(above: Sequence[Samples], below: Sequence[Samples], systematic_sd: float = 0.0) -> Interval:
    """Product of the locations ``above`` over that of those ``below``.

    ``systematic_sd`` is a relative uncertainty that attempts do not reduce; it widens the interval. Raises
    ``NoRatioError`` unless all attempts are positive.
    """
    tops, bases = [logs(samples) for samples in above], [logs(samples) for samples in below]
    value = _bounded(math.prod(map(location, above)) / math.prod(map(location, below)))
    spread = contrast(tops, bases, systematic_sd=systematic_sd)
    if spread is None:
        return value, None, None
    low, high = spread.interval(TAIL)
    # Relative to its middle: without width both ends are the value itself.
    return value, _grown(value, low - spread.value), _grown(value, high - spread.value)


def _grown(value: float, logarithm: float) -> float:
    """A value times an exponential."""
    return _bounded(value * math.exp(min(logarithm, _MOST_LOGARITHM)))


def _bounded(value: float) -> float:
    """Larger values than any measurement are cut to the largest, so that a results.json with them can be read."""
    return max(-LARGEST, min(value, LARGEST))


def _have_logarithms(values: Sequence[float]) -> bool:
    """Whether all are positive; one smaller than any measurement counts as zero."""
    return min(values) >= _LEAST


def _offsets(values: Sequence[float]) -> list[float]:
    """From the first value, of logarithms where all are positive; exactly 0 where all are equal."""
    first = values[0]
    if _have_logarithms(values):
        return [math.log(value / first) for value in values]
    return [value - first for value in values]


def _moved(values: Sequence[float], offset: float) -> float:
    """The first value moved by such an offset."""
    return _grown(values[0], offset) if _have_logarithms(values) else _bounded(values[0] + offset)
