"""Whether nights that are looked at show a second speed, which single attempts of earlier nights had, too.

A process may draw one of two speeds and keep it: of twenty equal runs of a decode on an H100 sixteen took 12.22 ms for
a token and four 11.65 ms (docs/results/h200x4_2026-11-27.md). The median of three attempts is now and then of the rarer
speed, where that of no other night lies. That is no change of the row.

Attempts are compared with others of their night, so that what the night did to all of them is in none of the distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod

SECOND_SPEED = "single attempts of earlier nights were as far off, too"
"""Of a row that passes for it."""
_CHANCE = 0.001
"""Attempts that are drawn no more often by chance show a change."""
_AS_FAR = 0.75
"""Attempts scatter about both speeds: an earlier one counts from this share of a distance on."""


def is_second_speed(
    nights: Sequence[Sequence[float]], level: Sequence[Sequence[float]], centre: float, *, worse: bool
) -> bool:
    """Whether chance draws the attempts of ``nights`` from distances that those of the ``level``'s nights have.

    Values are logarithms, higher is better; ``centre`` is the level's. With one attempt a night no distance is known,
    and with two a night of both speeds lies between them, so that it is no example of the level.
    """
    sign = 1 if worse else -1
    known = [distance for night in level for distance in _distances([sign * value for value in night])]
    chances = (_chance(_distances([sign * value for value in night], sign * centre), known) for night in nights)
    return bool(known) and prod(chances) > _CHANCE


def _distances(night: Sequence[float], least: float | None = None) -> list[float]:
    """How far attempts lie below the best of their night, or below ``least`` where all do."""
    best = max(night if least is None else [*night, least], default=0.0)
    return [best - value for value in night]


def _chance(night: Sequence[float], known: Sequence[float]) -> float:
    """Of more than half of the attempts as far off as these, or of all of them; the less likely of both."""
    off = sorted(night, reverse=True)
    counts = {len(off) // 2 + 1, len(off)} if off else set()
    return min((_at_least(num, len(off), _share(off[num - 1], known)) for num in counts), default=1.0)


def _share(distance: float, known: Sequence[float]) -> float:
    return sum(one >= _AS_FAR * distance for one in known) / max(len(known), 1)


def _at_least(num: int, trials: int, share: float) -> float:
    """Chance of so many successes or more (binomial distribution)."""
    return sum(comb(trials, n) * share**n * (1 - share) ** (trials - n) for n in range(num, trials + 1))
