"""Sums of a sampling counter, compared with their definition."""

from __future__ import annotations

import numpy as np
import pytest

from pybench import _energy
from pybench.power.bridge import phases_s

PERIOD_S = 0.02


@pytest.mark.parametrize("tau_s", [0.0109, 0.0])
def test_samples_are_added_up_each_for_their_period(tau_s: float) -> None:
    """By phase, between any two of the times, within the curve and up to its ends."""
    rng = np.random.default_rng(5)
    time_s, power_w = np.cumsum(rng.uniform(0.004, 0.03, 200)), rng.uniform(100, 700, 199)
    energy_j = np.append(0.0, np.cumsum(power_w * np.diff(time_s)))
    seen_w, at_s = rng.uniform(100, 700, 200), np.sort(rng.uniform(time_s[0], time_s[-1], 30))
    found_j = _energy.counted(
        time_s, energy_j, seen_w, tau_s=tau_s, at_s=at_s, phase_s=phases_s(PERIOD_S), period_s=PERIOD_S
    )
    assert len(found_j) == len(phases_s(PERIOD_S)) == 8
    for phase_s, counted_j in zip(phases_s(PERIOD_S), found_j, strict=True):
        samples_s = phase_s + PERIOD_S * np.arange(-2, time_s[-1] // PERIOD_S + 2)
        piece = np.clip(np.searchsorted(time_s, samples_s, side="right") - 1, 0, 198)
        since_s = np.maximum(samples_s - time_s[piece], 0)
        behind = np.exp(-since_s / tau_s) if tau_s else np.zeros(len(since_s))
        sample_w = power_w[piece] + (seen_w[piece] - power_w[piece]) * behind
        wanted_j = np.interp(at_s, samples_s + PERIOD_S, np.cumsum(sample_w) * PERIOD_S)
        assert np.diff(counted_j) == pytest.approx(np.diff(wanted_j), abs=1e-9)


def test_a_curve_without_a_piece_is_refused() -> None:
    one = np.ones(1)
    with pytest.raises(ValueError, match="less than two times"):
        _energy.counted(one, one, one, tau_s=0.01, at_s=one, phase_s=one, period_s=PERIOD_S)
