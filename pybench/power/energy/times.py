"""From nanoseconds on two clocks to seconds since a window's start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pybench.power.trace import OffsetColumns, SeriesColumns

Column = npt.NDArray[np.float64]
Nanoseconds = npt.NDArray[np.int64]


def seconds_since(times_ns: Sequence[int] | Nanoseconds, origin_ns: int) -> Column:
    """Seconds; integers are subtracted first, since nanoseconds since boot need more digits than a float has."""
    return np.asarray((np.asarray(times_ns, dtype=np.int64) - origin_ns) / 1e9)


def middle(values: Column | Nanoseconds) -> float:
    """Median of values without NaN, at a third of what NumPy's own costs for some hundreds of them."""
    half = len(values) // 2
    parted = np.partition(values, half if len(values) % 2 else (half - 1, half))
    return float(parted[half] if len(values) % 2 else (parted[half - 1] + parted[half]) / 2)


def series_near(series: SeriesColumns, offsets: OffsetColumns, spans_ns: Sequence[tuple[int, int]]) -> SeriesColumns:
    """The samples within spans of CLOCK_MONOTONIC, and some beside them; all without a span.

    They are recorded in the order of their stamps, so that no other is looked at.
    """
    if not spans_ns or not len(series.realtime_ns):
        return series
    realtime_ns, power_mw = np.asarray(series.realtime_ns, dtype=np.int64), np.asarray(series.power_mw)
    offsets_ns = np.asarray(offsets.realtime_offset_ns, dtype=np.int64)
    lowest_ns, highest_ns = (int(offsets_ns.min()), int(offsets_ns.max())) if len(offsets_ns) else (0, 0)
    parts, end = [], 0
    for start_ns, end_ns in spans_ns:
        first = max(end, int(np.searchsorted(realtime_ns, start_ns + lowest_ns)))
        end = max(first, int(np.searchsorted(realtime_ns, end_ns + highest_ns, side="right")))
        parts.append(slice(first, end))
    return SeriesColumns(
        realtime_ns=np.concatenate([realtime_ns[part] for part in parts]),  # type: ignore[arg-type]
        power_mw=np.concatenate([power_mw[part] for part in parts]),  # type: ignore[arg-type]
    )


def series_times_ns(series: SeriesColumns, offsets: OffsetColumns) -> Nanoseconds:
    """The series' stamps on CLOCK_MONOTONIC, by the newest offset measured before each; the first for older ones."""
    realtime_ns = np.asarray(series.realtime_ns, dtype=np.int64)
    if not len(offsets.t_ns):
        return realtime_ns
    offsets_ns = np.asarray(offsets.realtime_offset_ns, dtype=np.int64)
    measured_ns = np.asarray(offsets.t_ns, dtype=np.int64) + offsets_ns
    newest = np.searchsorted(measured_ns, realtime_ns, side="right") - 1
    return np.asarray(realtime_ns - offsets_ns[np.maximum(newest, 0)])
