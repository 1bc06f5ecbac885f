"""How a GPU stood in a window."""

from __future__ import annotations

from pybench.compute.conditions import conditions_in
from pybench.model.health import GpuConditions
from pybench.model.trace import MISSING, GpuTrace, PowerTrace, SlowColumns


def _trace(slow: SlowColumns) -> PowerTrace:
    return PowerTrace(start_ns=0, end_ns=100, gpus=(GpuTrace(uuid="GPU-a", index=3, name="g", slow=slow),))


def test_only_the_window_counts() -> None:
    """Median clock, highest temperature, every reason of readings at 10, 20 and 30; 40 is outside."""
    slow = SlowColumns(
        t_ns=(5, 10, 20, 30, 40),
        temperature_c=(99, 50, 60, 55, 99),
        sm_clock_mhz=(1, 1980, MISSING, 1700, 1),
        clock_event_reasons=(8, 0, 4, 1, 8),
    )
    assert conditions_in(_trace(slow), 10, 30) == (
        GpuConditions(uuid="GPU-a", index=3, sm_clock_hz=1.84e9, temperature_c=60.0, clock_event_reasons=5),
    )


def test_nothing_read_is_unknown() -> None:
    """A window between two readings, and columns that were never filled."""
    unknown = (GpuConditions(uuid="GPU-a", index=3),)
    assert conditions_in(_trace(SlowColumns(t_ns=(5,), temperature_c=(1,))), 10, 30) == unknown
    assert conditions_in(_trace(SlowColumns(t_ns=(20,))), 10, 30) == unknown
