"""Tails of the binomial distribution."""

from __future__ import annotations

import pytest

from pybench.core.statistics.binomial import at_least


@pytest.mark.parametrize(
    ("num", "trials", "share", "expected"),
    [(0, 3, 0.2, 1.0), (2, 3, 0.5, 0.5), (3, 3, 1 / 6, 1 / 216), (4, 6, 1 / 6, 406 / 6**6), (2, 3, 1.0, 1.0)],
)
def test_by_hand(num: int, trials: int, share: float, expected: float) -> None:
    """Of four or more of six: 15 * 25 + 6 * 5 + 1 of 6 to the sixth."""
    assert at_least(num, trials, share) == pytest.approx(expected, rel=1e-12)


def test_many_trials_do_not_overflow() -> None:
    """Half of 10,000."""
    assert at_least(5000, 10_000, 0.5) == pytest.approx(0.504, abs=0.001)
