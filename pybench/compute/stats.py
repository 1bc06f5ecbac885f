"""Intervals from attempts and the steps within them.

Within-run intervals miss the spread between runs, so both levels are resampled: attempts with replacement, then steps
within each chosen attempt. With few attempts the percentile bootstrap is too narrow; its quantiles are therefore moved
outwards as Hesterberg proposes ("expanded percentile interval": T. Hesterberg, What Teachers Should Know About the
Bootstrap, The American Statistician 69(4), 2015, section 4.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Samples = Sequence[Sequence[float]]
"""One sequence of step values for each attempt."""

CONFIDENCE = 0.95
NUM_RESAMPLES = 4000
_SEED = 20260101

# Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom; beyond the table the normal's 1.96 is near.
_T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


def location(samples: Samples) -> float:
    """Mean over attempts of each attempt's median step. Raises ``ValueError`` without any step."""
    return float(np.mean([np.median(attempt) for attempt in _used(samples)]))


def estimate(samples: Samples) -> tuple[float, float | None, float | None]:
    """Location with its interval. One attempt shows no spread between runs: its ends are ``None``."""
    used = _used(samples)
    value = location(used)
    if len(used) < 2:  # noqa: PLR2004 - one attempt has no spread
        return value, None, None
    low, high = _expanded_interval(_resampled(used, _SEED), len(used))
    return value, min(low, value), max(high, value)


def ratio(samples: Samples, baseline: Samples) -> tuple[float, float | None, float | None]:
    """Location of ``samples`` over that of ``baseline``, with its interval. Raises ``ValueError`` on a 0 baseline."""
    return _quotient((samples,), (baseline,))


def ratio_change(
    now: tuple[Samples, Samples], then: tuple[Samples, Samples]
) -> tuple[float, float | None, float | None]:
    """The ratio of ``now``'s two over the ratio of ``then``'s two, with its interval; raises as :func:`ratio` does."""
    return _quotient((now[0], then[1]), (now[1], then[0]))


def _quotient(above: Sequence[Samples], below: Sequence[Samples]) -> tuple[float, float | None, float | None]:
    """Product of some locations over that of as many others."""
    tops, bases = [_used(samples) for samples in above], [_used(samples) for samples in below]
    base_value = math.prod(location(base) for base in bases)
    if base_value <= 0:
        raise ValueError(f"a ratio needs a positive baseline, found {base_value}")
    value = math.prod(location(top) for top in tops) / base_value
    num_attempts = min(len(used) for used in (*tops, *bases))
    if num_attempts < 2:  # noqa: PLR2004 - one attempt has no spread
        return value, None, None
    resampled = np.ones(NUM_RESAMPLES)
    for index, (top, base) in enumerate(zip(tops, bases, strict=True)):
        resampled *= _resampled(top, _SEED + 2 * index) / _resampled(base, _SEED + 2 * index + 1)
    low, high = _expanded_interval(resampled, num_attempts)
    return value, min(low, value), max(high, value)


def t_quantile(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t for ``freedom`` degrees of freedom, 1 or more."""
    return _T_QUANTILES[freedom - 1] if freedom <= len(_T_QUANTILES) else NormalDist().inv_cdf(0.975)


def outlying_attempts(samples: Samples) -> tuple[int, ...]:
    """Positions of attempts whose median is far off the others' (Iglewicz and Hoaglin: modified z above 3.5)."""
    medians = np.array([np.median(attempt) for attempt in _used(samples)])
    centre = np.median(medians)
    spread = np.median(np.abs(medians - centre))
    if len(medians) < 4 or spread == 0:  # noqa: PLR2004 - of three, one is always farthest off
        return ()
    scores = 0.6745 * np.abs(medians - centre) / spread
    return tuple(int(index) for index in np.flatnonzero(scores > 3.5))  # noqa: PLR2004 - their constant


def _used(samples: Samples) -> list[Sequence[float]]:
    used = [attempt for attempt in samples if len(attempt)]
    if not used:
        raise ValueError("no step was measured")
    return used


def _resampled(attempts: Sequence[Sequence[float]], seed: int) -> NDArray[np.float64]:
    """Locations of ``NUM_RESAMPLES`` two-level resamples.

    A resampled attempt's median is drawn directly: the k-th smallest of m uniform picks is Beta(k, m + 1 - k), so
    memory does not grow with the number of steps.
    """
    random = np.random.default_rng(seed)
    lengths = np.array([len(attempt) for attempt in attempts])
    ordered = np.zeros((len(attempts), lengths.max()))
    for row, attempt in zip(ordered, attempts, strict=True):
        row[: len(attempt)] = np.sort(attempt)
    chosen = random.integers(len(attempts), size=(NUM_RESAMPLES, len(attempts)))
    size = lengths[chosen]
    rank = (size + 1) // 2
    lower = random.beta(rank, size + 1 - rank)
    # An even number of steps has two middle ones; the next smallest lies above the lower by a Beta(1, m - k) share.
    gap = (1 - lower) * random.beta(1, np.maximum(size - rank, 1))
    upper = np.where(size % 2 == 0, lower + gap, lower)
    medians = (ordered[chosen, _position(lower, size)] + ordered[chosen, _position(upper, size)]) / 2
    means: NDArray[np.float64] = medians.mean(axis=1)
    return means


def _position(share: NDArray[np.float64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    # A share that rounds to 1 must not point past the last step.
    return np.minimum((share * size).astype(np.int64), size - 1)


def _normal_interval(resampled: NDArray[np.float64], reach: float) -> tuple[float, float]:
    """``reach`` standard deviations each way, of the logarithm where all values are positive: so stay both ends."""
    positive = bool((resampled > 0).all())
    scaled = np.log(resampled) if positive else resampled
    centre, spread = float(scaled.mean()), reach * float(scaled.std())
    ends = (centre - spread, centre + spread)
    return (math.exp(ends[0]), math.exp(ends[1])) if positive else ends


def _expanded_interval(resampled: NDArray[np.float64], num_attempts: int) -> tuple[float, float]:
    """Percentile interval at the quantiles that Student's t and the bootstrap's own bias ask for."""
    freedom = num_attempts - 1
    quantile = t_quantile(freedom)
    tail = NormalDist().cdf(-quantile * (num_attempts / freedom) ** 0.5)
    # Quantiles beyond the outermost resample are those of a normal with the resamples' spread.
    if tail * NUM_RESAMPLES < 1:
        return _normal_interval(resampled, quantile * (num_attempts / freedom) ** 0.5)
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return float(low), float(high)
