"""Two runs of one suite side by side: which of them makes the next attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybench.core.schedule.attempts import Attempt


def next_side(first: Sequence[Attempt], second: Sequence[Attempt], places: Mapping[str, int]) -> int | None:
    """0 for the first run, 1 for the second, ``None`` where neither owes an attempt.

    ``places`` has each point's place in the suite. Both make the same attempts one after the other, the first run
    before the second in odd rounds and behind it in even ones (A-B-B-A): a machine that warms up or slows down favours
    neither.
    """
    if not first or not second:
        return None if not (first or second) else 0 if first else 1
    one, other = _key(first[0], places), _key(second[0], places)
    if one == other:
        return 0 if first[0][1] % 2 else 1
    return 0 if one < other else 1


def _key(attempt: Attempt, places: Mapping[str, int]) -> tuple[int, int]:
    """Sorts attempts as each run makes them: by round, every second round backwards."""
    point, number = attempt
    return number, places[point.id] if number % 2 else -places[point.id]
