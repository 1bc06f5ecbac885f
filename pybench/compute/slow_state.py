"""How a GPU stood in and around a window: temperature, clocks, clock event reasons."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.trace import MISSING

# State is read each second, and when an end of a window is anchored: which is a little after it.
NEAREST_NS = 1_500_000_000


def around(values: Sequence[int], times_ns: Sequence[int], start_ns: int, end_ns: int) -> list[int]:
    """Known values read inside the window, and the one on either side that was read within 1.5 s of it.

    ``values`` may be empty, a column that was never filled; times rise.
    """
    if len(values) != len(times_ns):
        return []
    before = [place for place, t_ns in enumerate(times_ns) if start_ns - NEAREST_NS <= t_ns < start_ns]
    inside = [place for place, t_ns in enumerate(times_ns) if start_ns <= t_ns <= end_ns]
    after = [place for place, t_ns in enumerate(times_ns) if end_ns < t_ns <= end_ns + NEAREST_NS]
    places = [*before[-1:], *inside, *after[:1]]
    return [int(values[place]) for place in places if values[place] != MISSING]
