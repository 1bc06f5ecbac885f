"""A GPU's part of a power trace as every report draws it: its power, and what held its clock down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pybench.core.clock_events import event_words
from pybench.power.energy.series import IMPOSSIBLE_W, polled_power_mw
from pybench.power.energy.times import Nanoseconds, series_times_ns
from pybench.power.trace import MISSING, GpuTrace, PowerTrace


def power_samples(gpu: GpuTrace, trace: PowerTrace) -> tuple[Nanoseconds, Nanoseconds]:
    """When, in ns of CLOCK_MONOTONIC, and how many mW, in order of time.

    The driver's series; without one, polled power: that of the moment, else the driver's mean. Readings that no board
    draws are left out: they are errors of the driver, beside which a chart would show nothing else.
    """
    if len(gpu.series.power_mw):
        times_ns, power_mw = series_times_ns(gpu.series, trace.offsets), np.asarray(gpu.series.power_mw, np.int64)
    else:
        times_ns, power_mw = np.asarray(gpu.polled.t_ns, np.int64), polled_power_mw(gpu.polled)
    known = (power_mw != MISSING) & (power_mw <= IMPOSSIBLE_W * 1e3)
    order = np.argsort(times_ns[known], kind="stable")
    return times_ns[known][order], power_mw[known][order]


def clock_limits(gpu: GpuTrace, trace: PowerTrace) -> Iterator[tuple[int, int, str]]:
    """Start, end and words of each span in which something held the GPU's clock down, from one reading to the next."""
    times_ns = [*(int(t) for t in gpu.slow.t_ns), trace.end_ns]
    spans: list[tuple[int, int, str]] = []
    for place, reasons in enumerate(gpu.slow.clock_event_reasons):
        words = ", ".join(event_words(int(reasons))) if int(reasons) != MISSING else ""
        if words and spans and spans[-1][1:] == (times_ns[place], words):
            spans[-1] = (spans[-1][0], times_ns[place + 1], words)
        elif words:
            spans.append((times_ns[place], times_ns[place + 1], words))
    yield from spans
