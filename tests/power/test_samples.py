"""Samples of power: the highest reading."""

from __future__ import annotations

import numpy as np

from pybench.power.samples import highest_power_w


def test_the_highest_power_of_a_long_recording_is_no_glitch() -> None:
    """With more readings than the percentile looks at, also if most of them are idle."""
    power_mw = np.where(np.arange(100_000) % 7 < 5, 70_000, 690_000)
    power_mw[54_321] = 695_000
    assert highest_power_w(power_mw) == 695.0
    power_mw[12_345] = 60_000_000
    assert highest_power_w(power_mw) == 695.0
    power_mw[:] = 400_000
    power_mw[12_345] = 60_000_000
    assert highest_power_w(power_mw) == 400.0
