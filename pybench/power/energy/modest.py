"""How much wider a bound must be on a board whose sensor is known from elsewhere, or not at all."""

from __future__ import annotations

import numpy as np

from pybench.power.energy.curve import Windows
from pybench.power.energy.series import Samples
from pybench.power.sensor import SensorModel

# Samples this near an end show what the power ranges over there.
NEAR_S = 1.0
# Standard deviations of a mean of few values.
UNSEEN_SIGMAS = 4.0
# Power that is never seen may be anything; at the least this part of what is seen.
UNSEEN_FRACTION = 0.02
UNCALIBRATED_FRACTION = 0.02


def modest_half_width_j(samples: Samples, windows_s: Windows, sensor: SensorModel) -> float:
    """What is to be added to half the bound, in J.

    A reading may belong to any moment within the sensor's blur, so that at each end of a window the power's range
    times that is open. The part of the time that the sensor does not see is as likely to hold any of the powers it saw
    nearby: the mean of one value a period scatters about theirs. A load in step with the sensor has any error up to
    its whole swing, which no reading shows: that is what the flag ``part_time_sensor`` is for.
    """
    ends_j = sum(_range_w(samples, at_s) * sensor.blur_s for window in windows_s for at_s in window)
    length_s = sum(end_s - start_s for start_s, end_s in windows_s)
    near_w = samples.near(windows_s[0][0] - NEAR_S, windows_s[-1][1] + NEAR_S).power_w
    if not len(near_w):
        return float(ends_j)
    unseen = 1 - sensor.seen_fraction
    num_values = max(length_s / sensor.period_s, 1.0)
    scatter_w = UNSEEN_SIGMAS * float(np.std(near_w)) / np.sqrt(num_values) + UNSEEN_FRACTION * float(np.mean(near_w))
    return float(ends_j + (unseen * scatter_w + UNCALIBRATED_FRACTION * float(np.mean(near_w))) * length_s)


def _range_w(samples: Samples, at_s: float) -> float:
    near_w = samples.near(at_s - NEAR_S, at_s + NEAR_S).power_w
    return float(np.ptp(near_w)) if len(near_w) else 0.0
