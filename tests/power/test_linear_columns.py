"""Sums over time at any times, values placed on a grid and peaks of a spectrum, against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from pybench import _energy


@pytest.mark.parametrize("seed", range(5))
def test_interpolated(seed: int) -> None:
    """Equal to NumPy's interpolation of each column, for times in any order, beyond the ends and at its times."""
    rng = np.random.default_rng(seed)
    time_s = np.sort(rng.uniform(-1, 1, 30))
    time_s[7] = time_s[8]
    columns = rng.normal(size=(3, 30))
    at_s = np.concatenate((rng.uniform(-1.5, 1.5, 98), time_s)).reshape(2, 64)
    found = _energy.interpolated(time_s, list(columns), at_s)
    expected = [np.interp(at_s, time_s, column) for column in columns]
    assert found == pytest.approx(np.array(expected), rel=1e-12, abs=1e-12)


def test_columns_of_another_length_are_refused() -> None:
    """Before any is read."""
    with pytest.raises(ValueError, match="differ in length"):
        _energy.interpolated(np.arange(3.0), [np.arange(2.0)], np.zeros(1))
    with pytest.raises(ValueError, match="differ in length"):
        _energy.within(np.arange(2.0), np.arange(2.0), np.zeros(2), np.zeros(1))


def test_within_windows() -> None:
    """Of 10 J a second: windows from 1 to 2 s and from 4 to 6 s."""
    at_s = np.array([0.0, 1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 9.0])
    ends_s = np.array([1.0, 2.0, 4.0, 6.0])
    found_j = _energy.within(ends_s, 10 * ends_s, at_s, 10 * at_s)
    assert found_j.tolist() == [0, 0, 5, 10, 10, 15, 30, 30]


def test_published() -> None:
    """A value's readings saw one publication, and a later value a later one."""
    # Each 100 ms; of the second value both readings may be of two publications, which its neighbours decide.
    before_s = np.array([0.05, 0.19, 0.23, 0.35])
    after_s = np.array([0.06, 0.21, 0.31, 0.36])
    found_s = _energy.published(before_s, after_s, [0, 1, 3], 0.0, 0.1)
    assert found_s is not None
    assert found_s == pytest.approx([0.0, 0.2, 0.3])


def test_a_grid_that_cannot_hold_the_readings() -> None:
    """Three values within one period."""
    before_s = np.array([0.01, 0.03, 0.05])
    assert _energy.published(before_s, before_s + 0.01, [0, 1, 2], 0.0, 0.1) is None


def test_a_reading_that_is_not_there() -> None:
    """Is refused."""
    with pytest.raises(ValueError, match="no such reading"):
        _energy.published(np.zeros(1), np.zeros(1), [1], 0.0, 0.1)


@pytest.mark.parametrize("size", [3, 4, 60, 61])
def test_middle_deviation(size: int) -> None:
    """The median of what samples differ from their neighbours' mean by."""
    power_w = np.random.default_rng(size).uniform(0.5, 700, size)
    off = np.abs(power_w[1:-1] - (power_w[:-2] + power_w[2:]) / 2) / np.maximum(power_w[1:-1], 1)
    assert _energy.middle_deviation(power_w) == pytest.approx(float(np.median(off)))
    with pytest.raises(ValueError, match="less than three"):
        _energy.middle_deviation(power_w[:2])
