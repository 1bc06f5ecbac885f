"""The driver's series as an energy curve: ripples folded, loads in step looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pybench.power.curve import Curve, LowPass, noise_w, undo_low_pass
from pybench.power.in_step import MOST_REPEAT, hidden_w
from pybench.power.ripple import Ripple, find_ripple
from pybench.power.samples import Samples, Windows
from pybench.power.sensor import SensorModel

MIN_SAMPLES = 4
# Samples within 2 s of a window's end are folded: enough for a shape, few enough for a period that drifts.
RIPPLE_SPAN_S = 2.0
# Samples around a window, or around an end of a long one, in which a load in step is looked for.
LOOKED_AT = 250
# Variance at both ends of the folded samples, over that of a counter value. With 1, 4 of 60 simulated windows of 5 s
# over 50.6 Hz were outside their bound, with 2 two.
EDGE_TIMES = 2.0
# A cycle counts if a window holds four of them; cycles of more than 400 samples are not looked for.
REPEATS = 4
LONGEST_REPEAT = 400


def series_curve(samples: Samples, windows_s: Windows, sensor: SensorModel) -> Curve | None:
    """Energy by the series, with the low-pass undone and ripples at a lone window's ends folded.

    ``None`` for fewer than ``MIN_SAMPLES`` samples.
    """
    if len(samples.time_s) < MIN_SAMPLES:
        return None
    # Ripples of several windows would overlap. Unfolded, they widen the bound.
    ripples = tuple(
        ripple.behind(sensor.tau_s, sensor.tau_sigma_s).settled(samples.time_s, samples.power_w, sensor.period_s)
        for ripple in (_ripples(samples, *windows_s[0]) if len(windows_s) == 1 else [])
    )
    smooth_w = samples.power_w - sum(ripple.power_seen_w(samples.time_s) for ripple in ripples)
    num_inside = (windows_s[-1][1] - windows_s[0][0]) / sensor.period_s
    most_repeat = int(min(max(num_inside / REPEATS, MOST_REPEAT), LONGEST_REPEAT))
    curve = undo_low_pass(samples.time_s, smooth_w, LowPass(sensor.tau_s, sensor.tau_sigma_s), most_repeat)
    drifting_j2 = [ripple.drifting_j2(sensor.period_s) for ripple in ripples]
    variance_j2 = curve.variance_j2
    for ripple, ripple_j2 in zip(ripples, drifting_j2, strict=True):
        # Beyond the folded samples both series and counter see the load as a slow wave.
        for edge_s in (ripple.start_s, ripple.end_s):
            variance_j2 = variance_j2 + EDGE_TIMES * ripple_j2 * (curve.time_s >= edge_s)
    return replace(
        curve,
        variance_j2=variance_j2,
        ripples=ripples,
        in_step_w=max((ripple.in_step_w(sensor.period_s) for ripple in ripples), default=0.0),
        mean_sigma_w=max((ripple.mean_sigma_w for ripple in ripples), default=0.0),
        drifting_j2=max(drifting_j2, default=0.0),
        hidden_w=_hidden_w(replace(samples, power_w=smooth_w), windows_s, ripples, sensor) if sensor.resolves else 0.0,
    )


def _ripples(samples: Samples, start_s: float, end_s: float) -> list[Ripple]:
    """The ripples at a window's ends, a single one for a short window."""
    near = [
        samples.near(first_s - RIPPLE_SPAN_S, last_s + RIPPLE_SPAN_S) for first_s, last_s in _end_spans(start_s, end_s)
    ]
    ripples = [find_ripple(part.time_s, part.power_w, noise_w(part.power_w)) for part in near]
    return [ripple for ripple in ripples if ripple is not None]


def _hidden_w(samples: Samples, windows_s: Windows, ripples: Sequence[Ripple], sensor: SensorModel) -> float:
    """The largest possible error of the mean power near the windows' ends; ``samples`` are without ripples."""
    largest_w = 0.0
    for first_s, last_s in _end_spans(windows_s[0][0], windows_s[-1][1]):
        near = samples.nearest(first_s, last_s, LOOKED_AT)
        around = [ripple for ripple in ripples if ripple.start_s <= last_s and ripple.end_s >= first_s]
        for ripple in around:
            near = near.near(ripple.start_s, ripple.end_s)
        largest_w = max(largest_w, hidden_w(near.time_s, near.power_w, sensor, folded=bool(around)))
    return largest_w


def _end_spans(start_s: float, end_s: float) -> Windows:
    """A short window whole, else both its ends."""
    short = end_s - start_s <= 2 * RIPPLE_SPAN_S
    return [(start_s, end_s)] if short else [(start_s, start_s), (end_s, end_s)]
