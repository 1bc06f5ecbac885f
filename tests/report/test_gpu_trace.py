"""What reports draw of a GPU's trace."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.power.chart import clock_limits, power_samples
from pybench.power.trace import MISSING, GpuTrace, OffsetColumns, PolledColumns, PowerTrace, SeriesColumns, SlowColumns

_POLLED = PolledColumns(t_ns=(3, 1, 2), instant_mw=(30, 10, MISSING), average_mw=(33, 11, 22))


def _trace(**columns: Any) -> tuple[GpuTrace, PowerTrace]:
    gpu = GpuTrace(uuid="GPU-a", index=0, name="a", **columns)
    offsets = OffsetColumns(t_ns=(0,), realtime_offset_ns=(100,), set_by_ns=(0,))
    return gpu, PowerTrace(start_ns=0, end_ns=9, gpus=(gpu,), offsets=offsets)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"series": SeriesColumns(realtime_ns=(105, 104), power_mw=(7, 8)), "polled": _POLLED}, [(4, 8), (5, 7)]),
        ({"polled": _POLLED}, [(1, 10), (3, 30)]),
        # Boards before Ampere report the mean alone.
        ({"polled": PolledColumns(t_ns=(3, 1), instant_mw=(MISSING,) * 2, average_mw=(33, 11))}, [(1, 11), (3, 33)]),
        # Of an error of the driver, all 32 bits.
        ({"series": SeriesColumns(realtime_ns=(104, 105), power_mw=(2**32 - 1, 8))}, [(5, 8)]),
        ({}, []),
    ],
    ids=["series", "moment", "mean", "impossible", "none"],
)
def test_power_is_that_of_the_best_source(columns: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    """In order of time, without what was not read or no board draws, on the monotonic clock."""
    times_ns, power_mw = power_samples(*_trace(**columns))
    assert list(zip(times_ns.tolist(), power_mw.tolist(), strict=True)) == expected


def test_one_limit_that_lasts_is_one_span() -> None:
    """From reading to reading; the last one lasts until the trace ends."""
    slow = SlowColumns(t_ns=(1, 2, 3, 4, 5, 6), clock_event_reasons=(4, 4, 0, MISSING, 4, 8))
    first, *others = clock_limits(*_trace(slow=slow))
    assert first == (1, 3, "power limit")
    assert [(start, end) for start, end, _ in others] == [(5, 6), (6, 9)]
    assert len({words for _, _, words in others}) == 2
