"""A load in step with the samples of its power, which see it at few phases, by the samples that come early or late.

Of a load whose period is a whole number of samples, or that number of its periods, samples that come in time show a few
powers again and again. Their mean may be far from the load's. One sample in 25 comes 3 to 14 ms late and all are off by
some tenths of a millisecond: of such a load they show another power than those a period away do, and of a steady load
they do not. The extension compares them: ``csrc/hidden_wave.h``. Waves of one to four periods in one to three samples,
or within 0.4 Hz of those, are fitted to how far each sample is from the mean of its neighbours in the cycle.
"""

from __future__ import annotations

import math

from pybench import _energy
from pybench.power.energy.times import Column
from pybench.power.sensor import SensorModel

# A wave is seen where it explains so many times as much as is left (Fisher's F, of two and some hundreds).
EVIDENCE = 13.0
# A load that switches is off by more than its wave alone, by this at most; the wave is known to within its amplitude
# over the evidence's root, of which two are added.
SHAPE_TIMES = 1.25
AMPLITUDE_SIGMAS = 2.0
# Less beside a fold is in the doubts that the fold has itself.
LEAST_BESIDE_FOLD = 0.01


def hidden_w(time_s: Column, power_w: Column, sensor: SensorModel, *, folded: bool) -> float:
    """How far the mean power of these samples may be off, in W; 0 where nothing shows a load in step with them.

    Of a load that repeats after ``n`` samples the ``n``-th harmonic alone moves their mean: about ``1/n`` of the first.
    ``folded`` samples are what a ripple leaves.
    """
    evidence, _, amplitude_w, cycle = _energy.hidden_wave(time_s, power_w, tau_s=sensor.tau_s, period_s=sensor.period_s)
    shift_w = SHAPE_TIMES * amplitude_w / cycle
    if evidence < EVIDENCE or (folded and shift_w < LEAST_BESIDE_FOLD * float(power_w.mean())):
        return 0.0
    return shift_w * (1 + AMPLITUDE_SIGMAS / math.sqrt(evidence))
