"""Waves and their harmonics, against plain least squares."""

from __future__ import annotations

import numpy as np
import pytest

from pybench.compute.energy.harmonics import Waves, cosine_and_sine, fits_near
from pybench.compute.energy.series import highest_power_w


def test_cosine_and_sine_of_any_angle() -> None:
    """Of half a turn and a quarter, too, where the tangent of the half is largest."""
    turns = np.concatenate((np.arange(-8, 9) / 4, np.random.default_rng(1).uniform(-300, 300, 1000)))
    cosine, sine = cosine_and_sine(turns)
    assert cosine == pytest.approx(np.cos(2 * np.pi * turns), abs=1e-12)
    assert sine == pytest.approx(np.sin(2 * np.pi * turns), abs=1e-12)


def test_waves_are_fitted_by_least_squares() -> None:
    """Each frequency with as many harmonics as lie within 260 Hz, five at most, a constant and a drift."""
    rng = np.random.default_rng(2)
    time_s, power_w = np.cumsum(rng.uniform(0.019, 0.022, 200)) - 2.0, rng.normal(400, 50, 200)
    waves = Waves.of(time_s, power_w, np.array([31.0, 61.7, 97.3]))
    for number, (frequency_hz, num) in enumerate([(31.0, 5), (61.7, 4), (97.3, 2)]):
        phase = 2 * np.pi * frequency_hz * np.outer(time_s, np.arange(1, num + 1))
        columns = np.column_stack((np.cos(phase), np.sin(phase), np.ones(200), time_s))
        weight, *_ = np.linalg.lstsq(columns, power_w)
        assert waves.left_w(power_w)[number] == pytest.approx(np.std(power_w - columns @ weight), rel=1e-9)
        assert waves.weight[number, : 2 * num : 2] == pytest.approx(weight[:num], abs=1e-5)
        assert waves.weight[number, 1 : 2 * num : 2] == pytest.approx(weight[num : 2 * num], abs=1e-5)


def test_a_frequency_is_tuned_to_that_of_the_samples() -> None:
    time_s = np.linspace(-2.0, 2.04, 200)
    power_w = 400 + 80 * np.cos(2 * np.pi * 30.02 * time_s) + 20 * np.sin(4 * np.pi * 30.02 * time_s)
    (fit,) = fits_near(time_s, power_w, Waves.of(time_s, power_w, np.array([30.0])))
    assert fit.frequency_hz == pytest.approx(30.02, abs=1e-6)
    assert fit.seen_w[:2] == pytest.approx([80, -20j], abs=1e-3)
    assert fit.left_w < 1e-3


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
