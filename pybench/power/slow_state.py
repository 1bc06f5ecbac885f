"""How a GPU stood in and around a window: temperature, clocks, clock event reasons."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pybench.power.trace import MISSING

# State is read each second, and when an end of a window is anchored: which is a little after it.
NEAREST_NS = 1_500_000_000


def around(values: Sequence[int], times_ns: Sequence[int], start_ns: int, end_ns: int) -> npt.NDArray[np.int64]:
    """Known values read inside the window, and the one on either side that was read within 1.5 s of it.

    ``values`` may be empty, a column that was never filled; times rise.
    """
    first, end = bisect_left(times_ns, start_ns), bisect_right(times_ns, end_ns)
    if first > 0 and times_ns[first - 1] >= start_ns - NEAREST_NS:
        first -= 1
    if end < len(times_ns) and times_ns[end] <= end_ns + NEAREST_NS:
        end += 1
    return _known(values, times_ns, first, end)


def within(values: Sequence[int], times_ns: Sequence[int], start_ns: int, end_ns: int) -> npt.NDArray[np.int64]:
    """Known values read inside the window, its ends included; ``values`` and times as :func:`around` has them."""
    return _known(values, times_ns, bisect_left(times_ns, start_ns), bisect_right(times_ns, end_ns))


def _known(values: Sequence[int], times_ns: Sequence[int], first: int, end: int) -> npt.NDArray[np.int64]:
    if len(values) != len(times_ns):
        return np.array([], dtype=np.int64)
    read = np.asarray(values[first:end], dtype=np.int64)
    return np.asarray(read[read != MISSING])
