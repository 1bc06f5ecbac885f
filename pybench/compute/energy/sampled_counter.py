"""What an energy counter holds that adds up samples of the power.

A counter that takes the power every ``T`` behind a low-pass of ``tau``, and adds it up for ``T`` each, follows the load
``T/2 + tau`` late, and is off at each of its jumps by up to 2 ms of it, depending on when within ``T`` the jump comes.
Where the series shows the jump, that error follows from the counter's phase.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.curve import Curve
from pybench.compute.energy.times import Column

# Phases are tried in steps of this.
PHASE_STEP_S = 2.5e-3

Matrix = npt.NDArray[np.float64]


def phases_s(period_s: float) -> Column:
    """Phases of the counter's samples to try."""
    return np.asarray(np.arange(max(round(period_s / PHASE_STEP_S), 1)) * PHASE_STEP_S)


def missed_j(curve: Curve, at_s: Matrix, phase_s: float, period_s: float) -> Matrix:
    """By how many joules the curve at each time is more than such a counter then holds, late as it is."""
    late_s = curve.tau_s + period_s / 2
    first_s = float(np.min(at_s)) + late_s - period_s
    last_s = float(np.max(at_s)) + late_s + period_s
    times_s = np.arange(np.floor((first_s - phase_s) / period_s) * period_s + phase_s, last_s, period_s)
    counted_j = np.concatenate(([0.0], np.cumsum(curve.seen_at_w(times_s[:-1]) * period_s)))
    return np.asarray(curve.at(at_s) - np.interp(at_s + late_s, times_s, counted_j))
