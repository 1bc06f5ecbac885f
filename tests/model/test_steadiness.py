"""Steps that are steady."""

from __future__ import annotations

import pytest

from pybench.model.steadiness import are_steady


@pytest.mark.parametrize(
    ("durations_ns", "steady"),
    [
        ([], False),
        ([100, 100], False),
        ([100, 100, 100], True),
        ([95, 100, 105], True),
        ([94, 100, 105], False),
        ([900, 100, 101, 102], False),
        ([100, 101, 99, 100, 104], True),
    ],
)
def test_steady_means_three_steps_or_more_within_five_percent(durations_ns: list[int], steady: bool) -> None:
    """Of their median; all of them count."""
    assert are_steady(durations_ns) == steady
