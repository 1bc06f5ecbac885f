"""How a GPU stood in a window."""

from __future__ import annotations

import pytest

from pybench.model.record import GpuConditions
from pybench.power.measured_window import conditions_in
from pybench.power.trace import MISSING, GpuTrace, PowerTrace, SlowColumns

MS = 1_000_000


def _trace(slow: SlowColumns) -> PowerTrace:
    return PowerTrace(start_ns=0, end_ns=100, gpus=(GpuTrace(uuid="GPU-a", index=3, name="g", slow=slow),))


def test_the_window_and_its_neighbours_count() -> None:
    """Median clock, highest temperature, every reason at 4, 10, 20, 30 and 40; 3 and 50 have neighbours nearer."""
    slow = SlowColumns(
        t_ns=(3, 4, 10, 20, 30, 40, 50),
        temperature_c=(99, 40, 50, 60, 55, 62, 99),
        sm_clock_mhz=(1, 1900, 1980, MISSING, 1700, 1600, 1),
        clock_event_reasons=(8, 0, 0, 4, 1, 2, 8),
    )
    assert conditions_in(_trace(slow), 10, 30) == (
        GpuConditions(uuid="GPU-a", index=3, sm_clock_hz=1.8e9, temperature_c=62.0, clock_event_reasons=7),
    )


def test_a_window_between_two_readings_has_both() -> None:
    slow = SlowColumns(t_ns=(0, 1000 * MS), sm_clock_mhz=(1900, 1700), clock_event_reasons=(0, 4))
    assert conditions_in(_trace(slow), 300 * MS, 400 * MS) == (
        GpuConditions(uuid="GPU-a", index=3, sm_clock_hz=1.8e9, clock_event_reasons=4),
    )


def test_nothing_read_nearby_is_unknown() -> None:
    """Readings over 1.5 s off, and columns that were never filled."""
    unknown = (GpuConditions(uuid="GPU-a", index=3),)
    far = SlowColumns(t_ns=(0, 4000 * MS), temperature_c=(1, 1))
    assert conditions_in(_trace(far), 1501 * MS, 2499 * MS) == unknown
    assert conditions_in(_trace(SlowColumns(t_ns=(20,))), 10, 30) == unknown


def test_utilisation_is_the_mean_of_readings_that_cover_the_window_alone() -> None:
    """A reading may cover the second before it: those at 2, 3 and 4 s, not at 1 s, nor behind the end."""
    slow = SlowColumns(
        t_ns=(0, 1000 * MS, 2000 * MS, 3000 * MS, 4000 * MS, 4100 * MS),
        gpu_utilization_percent=(0, 30, 80, MISSING, 100, 5),
    )
    (found,) = conditions_in(_trace(slow), 500 * MS, 4000 * MS)
    assert found.utilization_fraction == pytest.approx(0.9)


def test_utilisation_of_a_window_that_no_reading_covers_alone_is_unknown() -> None:
    slow = SlowColumns(t_ns=(0, 500 * MS, 1400 * MS, 1600 * MS), gpu_utilization_percent=(0, 100, 100, 0))
    (found,) = conditions_in(_trace(slow), 450 * MS, 1440 * MS)
    assert found.utilization_fraction is None
