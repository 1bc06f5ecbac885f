"""From nanoseconds on two clocks to seconds since a window's start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pybench.model.trace import OffsetColumns, SeriesColumns

Column = npt.NDArray[np.float64]
Nanoseconds = npt.NDArray[np.int64]


def seconds_since(times_ns: Sequence[int] | Nanoseconds, origin_ns: int) -> Column:
    """Seconds; integers are subtracted first, since nanoseconds since boot need more digits than a float has."""
    return np.asarray((np.asarray(times_ns, dtype=np.int64) - origin_ns) / 1e9)


def series_times_ns(series: SeriesColumns, offsets: OffsetColumns) -> Nanoseconds:
    """The series' stamps on CLOCK_MONOTONIC, by the newest offset measured before each; the first for older ones."""
    realtime_ns = np.asarray(series.realtime_ns, dtype=np.int64)
    if not len(offsets.t_ns):
        return realtime_ns
    offsets_ns = np.asarray(offsets.realtime_offset_ns, dtype=np.int64)
    measured_ns = np.asarray(offsets.t_ns, dtype=np.int64) + offsets_ns
    newest = np.searchsorted(measured_ns, realtime_ns, side="right") - 1
    return np.asarray(realtime_ns - offsets_ns[np.maximum(newest, 0)])
