"""Whether nights that are looked at show a second speed, which single attempts of earlier nights had, too.

An attempt may have one of two speeds: of twenty equal runs of a decode on an H100 sixteen took 12.22 ms for a token and
four 11.65 ms, by the gaps between the kernels of a CUDA graph (docs/results/h200.md). The median of
three attempts then has the rarer speed now and then, which no other night's median has. That is no change of the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from pybench.core.statistics.distributions import at_least

SECOND_SPEED = "single attempts of earlier nights were as far off, too"
"""Of a row that passes for it."""
_CHANCE = 0.001
"""Attempts that are drawn no more often by chance show a change."""
_AS_FAR = 0.75
"""Attempts scatter about both speeds: they have the second one from this share of the change on."""
_LEAST_ATTEMPTS = 3
"""With fewer a night's median is that of both speeds, or of one attempt."""
_LEAST_NIGHTS = 2
"""Nights of the level with the second speed: one bad attempt is none."""


def is_second_speed(
    nights: Sequence[Sequence[float]], level: Sequence[Sequence[float]], centre: float, deviation: float
) -> bool:
    """Whether chance draws so many attempts of ``nights`` as far off as ``deviation``, by their share in the ``level``.

    Values are logarithms, ``centre`` is the level's. Attempts of the level are compared with the median of their night,
    those that are looked at with the best of theirs, or the centre where all are off: what a night did to all of its
    attempts is in none of the distances.
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
