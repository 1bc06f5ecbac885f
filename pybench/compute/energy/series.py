"""The driver's own power series as an energy curve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.curve import GAP_S, Curve
from pybench.compute.energy.low_pass import POWER_STEP_W, UNTOLD, fit_low_pass, undo
from pybench.compute.energy.ripple import Ripple, find_ripple
from pybench.compute.energy.times import Column, series_times_ns
from pybench.model.trace import MISSING, GpuTrace, OffsetColumns

MIN_SAMPLES = 4
# Samples this near an end of a window are folded: enough of them for a shape, few enough for a period that drifts.
RIPPLE_SPAN_S = 2.0
# A board in use draws some tens of watts: a lone zero among its samples is the driver's slip, not power.
GLITCH_W = 1.0


@dataclass(frozen=True)
class Samples:
    """Samples in order, each time once, without those that are missing or glitches."""

    time_s: Column
    power_w: Column
    num_glitches: int

    @classmethod
    def of(cls, time_s: Column, power_w: Column) -> Self:
        """From readings in any order, some of them twice, some glitches."""
        time_s, first = np.unique(time_s, return_index=True)
        power_w = power_w[first]
        glitch = (power_w < GLITCH_W) & (np.median(power_w) > GLITCH_W) if len(power_w) else np.zeros(0, dtype=bool)
        return cls(time_s[~glitch], power_w[~glitch], int(glitch.sum()))

    def near(self, start_s: float, end_s: float) -> Samples:
        """The samples taken between two times."""
        return self._keep((self.time_s >= start_s) & (self.time_s <= end_s))

    def have_gap(self, start_s: float, end_s: float) -> bool:
        """Whether nothing was sampled for ``GAP_S`` somewhere in the window."""
        inside_s = self.near(start_s, end_s).time_s
        return bool(np.any(np.diff(np.concatenate(([start_s], inside_s, [end_s]))) > GAP_S))

    def _keep(self, which: npt.NDArray[np.bool_]) -> Samples:
        return Samples(self.time_s[which], self.power_w[which], self.num_glitches)

    @property
    def period_s(self) -> float | None:
        """Median spacing, ``None`` for a lone sample."""
        return float(np.median(np.diff(self.time_s))) if len(self.time_s) > 1 else None


def samples_of(gpu: GpuTrace, offsets: OffsetColumns, origin_ns: int) -> Samples:
    """The series of a GPU in seconds since ``origin_ns`` on CLOCK_MONOTONIC."""
    power_mw = np.asarray(gpu.series.power_mw, dtype=np.int64)
    time_s = (series_times_ns(gpu.series, offsets) - origin_ns) / 1e9
    known = power_mw != MISSING
    return Samples.of(time_s[known], power_mw[known] / 1e3)


def series_curve(samples: Samples, start_s: float, end_s: float) -> Curve | None:
    """Energy by the series, its low-pass undone and ripples around a window's ends resolved.

    ``None`` when there are too few samples.
    """
    if len(samples.time_s) < MIN_SAMPLES:
        return None
    ripples = _ripples(samples, start_s, end_s)
    smooth_w = samples.power_w - sum(ripple.power_seen_w(samples.time_s) for ripple in ripples)
    # What a ripple leaves is noise, which fits a sensor without any low-pass.
    low_pass = UNTOLD if ripples else fit_low_pass(samples.time_s, smooth_w)
    curve = undo(samples.time_s, smooth_w, low_pass)
    return replace(curve, ripples=tuple(ripple.behind(low_pass.tau_s, low_pass.sigma_s) for ripple in ripples))


def _ripples(samples: Samples, start_s: float, end_s: float) -> list[Ripple]:
    """Around both ends; around a short window at once."""
    short = end_s - start_s <= 2 * RIPPLE_SPAN_S
    spans = [(start_s, end_s)] if short else [(start_s, start_s), (end_s, end_s)]
    near = [samples.near(first_s - RIPPLE_SPAN_S, last_s + RIPPLE_SPAN_S) for first_s, last_s in spans]
    found = [find_ripple(part.time_s, part.power_w, POWER_STEP_W / np.sqrt(12)) for part in near]
    return [ripple for ripple in found if ripple is not None]
