"""The low-pass undone cell by cell."""

from __future__ import annotations

import numpy as np
import pytest

from pybench import _energy

TAU_S, PERIOD_S, GAP_S = 0.0109, 0.02, 0.3


def test_a_step_between_steady_powers_is_located_in_its_cell() -> None:
    """By hand: 100 W, then 300 W from 7 ms after a sample; 0.7 J and 3.9 J in that cell of 20 ms."""
    time_s = np.linspace(0, 0.1, 6)
    since_s = np.maximum(time_s - 0.047, 0)
    power_w = 300 - 200 * np.exp(-since_s / TAU_S)
    noise_w = np.full(6, 1e-3)
    pieces, _ = _energy.undone(time_s, power_w, noise_w, tau_s=TAU_S, period_s=PERIOD_S, gap_s=GAP_S)
    assert pieces[0] == pytest.approx([0.02, 0.04, 0.047, 0.06, 0.08, 0.1], abs=1e-9)
    assert pieces[1] == pytest.approx([2.0, 2.0, 0.7, 3.9, 6.0, 6.0], abs=1e-6)


def test_less_than_two_samples_are_refused() -> None:
    one = np.ones(1)
    with pytest.raises(ValueError, match="less than two samples"):
        _energy.undone(one, one, one, tau_s=TAU_S, period_s=PERIOD_S, gap_s=GAP_S)
