"""Waves and their harmonics, against plain least squares."""

from __future__ import annotations

import numpy as np
import pytest

from pybench.power.energy.harmonics import Fits, wave_sum
from pybench.power.energy.series import highest_power_w


def test_waves_are_fitted_by_least_squares() -> None:
    """Each frequency with as many harmonics as lie within 260 Hz, five at most, a constant and a drift."""
    rng = np.random.default_rng(2)
    time_s, power_w = np.cumsum(rng.uniform(0.019, 0.022, 200)) - 2.0, rng.normal(400, 50, 200)
    left_w = Fits(time_s, power_w, np.array([31.0, 61.7, 97.3])).left_w()
    for left, frequency_hz, num in zip(left_w, (31.0, 61.7, 97.3), (5, 4, 2), strict=True):
        columns = _columns(time_s, frequency_hz, num)
        weight, *_ = np.linalg.lstsq(columns, power_w)
        assert left == pytest.approx(np.std(power_w - columns @ weight), rel=1e-9)


@pytest.mark.parametrize(("frequency_hz", "num"), [(30.02, 5), (61.7, 4), (97.3, 2)])
def test_a_frequency_is_tuned_to_that_of_the_samples(frequency_hz: float, num: int) -> None:
    time_s = np.linspace(-2.0, 2.04, 200)
    turns = 2 * np.pi * frequency_hz * time_s
    power_w = 400 + 3 * time_s + 80 * np.cos(turns) + 20 * np.sin(2 * turns)
    (fit,) = Fits(time_s, power_w, np.array([frequency_hz - 0.02])).tuned([0])
    assert fit.frequency_hz == pytest.approx(frequency_hz, abs=1e-6)
    assert fit.seen_w == pytest.approx([80, -20j, 0, 0, 0][:num], abs=1e-3)
    assert fit.left_w < 1e-3


def test_what_is_left_is_that_of_samples_which_were_not_fitted() -> None:
    """Of two and two samples in turn, each two from the fit to the others."""
    rng = np.random.default_rng(3)
    time_s, power_w = np.cumsum(rng.uniform(0.019, 0.022, 90)) - 0.9, rng.normal(400, 50, 90)
    (fit,) = Fits(time_s, power_w, np.array([30.0])).tuned([0])
    columns, first = _columns(time_s, fit.frequency_hz, 5), np.arange(90) // 2 % 2 == 0
    off_w = np.empty(90)
    for half in (first, ~first):
        weight, *_ = np.linalg.lstsq(columns[half], power_w[half])
        off_w[~half] = power_w[~half] - columns[~half] @ weight
    assert fit.left_w == pytest.approx(np.sqrt(np.mean(off_w**2)), rel=1e-5)


def _columns(time_s: np.ndarray, frequency_hz: float, num: int) -> np.ndarray:
    phase = 2 * np.pi * frequency_hz * np.outer(time_s, np.arange(1, num + 1))
    return np.column_stack((np.cos(phase), np.sin(phase), np.ones(len(time_s)), time_s))


def test_the_sum_of_harmonics_at_times_of_any_shape() -> None:
    """Also days away, and at half a turn and a quarter."""
    time_s = np.array([[0.0, 1 / 120, 1 / 60], [-0.3, 17.77, 86_400.001]])
    amplitude_w = np.array([3 - 4j, 1j, 0.5])
    expected_w = sum(
        np.real(each * np.exp(2j * np.pi * order * (30 * time_s % 1)))
        for order, each in enumerate(amplitude_w, start=1)
    )
    assert wave_sum(time_s, 30.0, amplitude_w) == pytest.approx(expected_w, abs=1e-9)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="columns differ in length"):
        Fits(np.zeros(4), np.zeros(3), np.ones(1))


def test_the_highest_power_of_a_long_recording_is_no_glitch() -> None:
    """Of more readings than are looked at for what is usual, also where most of them are idle."""
    power_mw = np.where(np.arange(100_000) % 7 < 5, 70_000, 690_000)
    power_mw[54_321] = 695_000
    assert highest_power_w(power_mw) == 695.0
    power_mw[12_345] = 60_000_000
    assert highest_power_w(power_mw) == 695.0
    power_mw[:] = 400_000
    power_mw[12_345] = 60_000_000
    assert highest_power_w(power_mw) == 400.0
