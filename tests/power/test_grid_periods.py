"""Periods and phases that readings of the counter allow, against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from pybench import _energy

HALF_S, SLACK_S = 0.002, 1e-4


def allowed(period_s: float, brackets: np.ndarray, quiet: np.ndarray) -> tuple[float, float] | None:
    """Earliest and latest phase, by each bracket and each quiet span."""
    lows_s, highs_s = [-HALF_S], [HALF_S]
    for low_s, high_s in brackets.T:
        first, last = np.ceil((low_s - HALF_S - SLACK_S) / period_s), np.floor((high_s + HALF_S + SLACK_S) / period_s)
        if first > last:
            return None
        if first == last:
            lows_s.append(low_s - first * period_s)
            highs_s.append(high_s - first * period_s)
    for start_s, end_s in quiet.T:
        next_s = np.ceil((start_s - HALF_S) / period_s) * period_s
        before, after = next_s - HALF_S <= start_s + SLACK_S, next_s + HALF_S >= end_s - SLACK_S
        if not before and not after:
            return None
        if not before:
            lows_s.append(end_s - next_s)
        if not after:
            highs_s.append(start_s - next_s)
    return (max(lows_s), min(highs_s)) if max(lows_s) <= min(highs_s) + SLACK_S else None


@pytest.mark.parametrize("seed", range(4))
def test_periods_that_fit_and_their_phases(seed: int) -> None:
    """Exact for steps of 100 ms read every 1 to 9 ms, some without a reading between."""
    rng = np.random.default_rng(seed)
    steps_s = np.sort(rng.choice(80, 9, replace=False) - 30) * 0.1
    before_s, after_s = steps_s - rng.uniform(0.5e-3, 4e-3, 9), steps_s + rng.uniform(0.5e-3, 5e-3, 9)
    quiet_end_s = steps_s + rng.uniform(0.02, 0.0999, 9)
    brackets, quiet = np.array([before_s, after_s]), np.array([after_s, np.maximum(quiet_end_s, after_s)])
    periods_s = np.concatenate((np.arange(0.02, 0.2, 1e-3), np.arange(0.0995, 0.1005, 2e-6), [0.05, 0.1]))
    found = _energy.fitting_periods(periods_s, (before_s, after_s), (quiet[0], quiet[1]), HALF_S, SLACK_S)
    expected = [(period_s, *phases) for period_s in periods_s if (phases := allowed(period_s, brackets, quiet))]
    assert 0.1 in [period_s for period_s, _, _ in expected]
    assert len(expected) < len(periods_s) / 2
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


def test_brackets_without_an_end_are_refused() -> None:
    column = np.zeros(2)
    with pytest.raises(ValueError, match="columns differ in length"):
        _energy.fitting_periods(np.array([0.1]), (column, column[:1]), (column, column), HALF_S, SLACK_S)


@pytest.mark.parametrize("astray_s", [-2.5e-3, 2.5e-3])
def test_a_publication_off_its_grid_moves_no_other(astray_s: float) -> None:
    """Ten of 100 ms, each seen by readings 2 ms before and after it; the sixth is early or late."""
    steps_s = np.arange(10) * 0.1
    steps_s[5] += astray_s
    before_s = np.ravel(np.column_stack((steps_s + 1e-3, steps_s + 97e-3 + np.diff(steps_s, append=1.0) - 0.1)))
    found = _energy.published(before_s, before_s + 1e-3, list(range(0, 20, 2)), 0.0, 0.1)
    assert found is not None
    assert np.allclose(found, np.arange(10) * 0.1)
