"""What an energy counter holds that adds up samples of the power.

A counter that takes the power every ``T`` behind a low-pass of ``tau``, and adds it up for ``T`` each, follows the load
``T/2 + tau`` late, and is off at each of its jumps by up to 2 ms of it, depending on when within ``T`` the jump comes.
Where the series shows the jump, that error follows from the counter's phase.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.energy.curve import Curve
from pybench.power.energy.times import Column

# Phases are tried in steps of this.
PHASE_STEP_S = 2.5e-3

Matrix = npt.NDArray[np.float64]


def phases_s(period_s: float) -> Column:
    """Phases of the counter's samples to try."""
    return np.asarray(np.arange(max(round(period_s / PHASE_STEP_S), 1)) * PHASE_STEP_S)


def missed_j(curve: Curve, at_s: Matrix, phases_s: Column, period_s: float) -> Matrix:
    """By how many joules a curve without ripples at each time is more than such a counter then holds, late as it is.

    The second axis of ``at_s``, of one, becomes that of the phases.
    """
    assert curve.seen_w is not None
    late_at_s, own_j = at_s + (curve.tau_s + period_s / 2), curve.at(at_s)
    counted_j = _energy.counted(
        curve.time_s,
        curve.energy_j,
        curve.seen_w,
        tau_s=curve.tau_s,
        at_s=late_at_s.ravel(),
        phase_s=phases_s,
        period_s=period_s,
    )
    return np.asarray(own_j - np.moveaxis(counted_j.reshape(-1, *at_s[:, 0].shape), 0, 1))
