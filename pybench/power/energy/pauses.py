"""Take the joules of pauses out of a window's.

A dithered load is measured over steps and pauses together: an edge at each of thousands of pauses would be all doubt.
A pause directly follows work that has ended, so the GPU is idle in it, though its clocks have not come down yet: its
joules are taken to be those of the idle GPU. It draws no less than that, and no more than on average: the difference
widens the bound downwards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pybench.model.record import Energy, GpuEnergy
from pybench.power.trace import MISSING, GpuTrace, PowerTrace

# The lowest readings of a recording, which begins before its load: the GPU when idle.
IDLE_PERCENTILE = 1


def without_pauses(energy: Energy, trace: PowerTrace, pauses_s: float) -> Energy:
    """``energy`` less what the GPUs drew in ``pauses_s`` seconds of pauses within its window."""
    length_s = (energy.end_ns - energy.start_ns) / 1e9
    pairs = zip(energy.gpus, trace.gpus, strict=True)
    return replace(energy, gpus=tuple(_without(found, _idle_w(gpu), pauses_s, length_s) for found, gpu in pairs))


def _without(found: GpuEnergy, idle_w: float, pauses_s: float, length_s: float) -> GpuEnergy:
    flags = (*found.flags, "dithered")
    if found.energy_j is None or found.energy_low_j is None or found.energy_high_j is None:
        return replace(found, flags=flags)
    mean_w = found.energy_j / length_s
    least_j, most_j = min(idle_w, mean_w) * pauses_s, mean_w * pauses_s
    energy_j = found.energy_j - least_j
    return replace(
        found,
        energy_j=energy_j,
        energy_low_j=max(0.0, found.energy_low_j - most_j),
        energy_high_j=found.energy_high_j - least_j,
        mean_power_w=energy_j / (length_s - pauses_s),
        flags=flags,
    )


def _idle_w(gpu: GpuTrace) -> float:
    """Power of the idle GPU, 0 where it is not known."""
    power_mw = np.asarray(gpu.series.power_mw, dtype=np.int64)
    known = power_mw[power_mw != MISSING]
    return float(np.percentile(known, IDLE_PERCENTILE)) / 1e3 if len(known) else 0.0
