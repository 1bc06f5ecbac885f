"""Steps that are steady."""

from __future__ import annotations

import pytest

from pybench.model.wire import are_scattered, are_steady


@pytest.mark.parametrize(
    ("durations_ns", "steady"),
    [
        ([], False),
        ([100, 100], False),
        ([100, 100, 100], True),
        ([95, 100, 105], True),
        ([94, 100, 105], False),
        ([900, 100, 101, 102], False),
        ([2_000_000_000, 2_040_000_000], True),
        ([2_000_000_000, 2_300_000_000], False),
        ([2_000_000_000, 990_000_000], False),
        ([100, 101, 99, 100, 104], True),
    ],
)
def test_steady_means_three_steps_or_two_long_ones_within_five_percent(durations_ns: list[int], steady: bool) -> None:
    """Of their median; all of them count."""
    assert are_steady(durations_ns) == steady


@pytest.mark.parametrize(
    ("durations_ns", "scattered"),
    [
        ([], False),
        ([100, 200], False),
        ([899, 951, 1062], True),  # four H100s whose steps got longer
        ([400, 428, 576], True),
        ([689, 757, 690], False),  # one slow step
        ([100, 100, 105, 105, 105], False),
        ([100, 100, 106, 106, 112], True),
        ([95, 100, 105], False),
    ],
)
def test_scattered_means_half_of_three_steps_or_more_beyond_five_percent(
    durations_ns: list[int], scattered: bool
) -> None:
    """Relative to their median."""
    assert are_scattered(durations_ns) == scattered
