"""Joules of every GPU in one window, or in several together, from a power trace, with a bound.

Sources in order: the energy counter with the driver's series as its shape; the counter alone; the series alone; the
polled average. The scope is the GPU board as NVML counts it. The board's gain error, about ±5 %, is not in the bound:
it cancels in ratios on one board.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from pybench.machine.extension import REMEDY, extension_fault
from pybench.model.errors import MachineError
from pybench.model.record import Energy, GpuEnergy

# Before the modules that import the extension.
if (_FAULT := extension_fault("_energy")) is not None:
    raise MachineError(f"energy estimate: {_FAULT}; {REMEDY}")

from pybench.power.bridge import Bridged, Hypotheses, bridge
from pybench.power.counter import (
    MIN_CHANGES,
    PUBLICATION_BLUR_S,
    Anchors,
    PublicationGrid,
    Readings,
    candidate_grids,
    evenest,
    joined,
    without_grid,
)
from pybench.power.curve import Curve, series_curve
from pybench.power.flags import clock_was_set, state_flags
from pybench.power.in_step import FLAGGED_FRACTION, LoadPeriods, alias_fraction
from pybench.power.samples import (
    GLITCH_W,
    IMPOSSIBLE_W,
    Samples,
    Windows,
    averages_of,
    max_power_w,
    power_within_mw,
    samples_of,
)
from pybench.power.sensor import UNKNOWN_SENSOR, SensorModel
from pybench.power.trace import GpuTrace, OffsetColumns, PowerTrace

Method = Literal["counter+series", "counter", "series", "polled", "none"]

# Half a bound, in standard deviations and as a least fraction of the energy. The truth was inside in over 99 % of the
# windows of every simulated load.
BOUND_SIGMAS = 3.0
BOUND_FLOOR_FRACTION = 5e-4
# Distance in s of a publication from its grid that a standard deviation does not cover: one in twenty is 1.5 to 4 ms
# away (eight H200s).
ASTRAY_S = 2.2e-3
# Resolution of the counter at both ends of a window.
COUNTER_DIGIT_J = 2e-3
# Counter and power contradict each other if they differ by more, as a fraction of the energy.
CONTRADICTION_FRACTION = 0.03
# Part of a long window that its samples must cover for a check of the counter.
LEAST_SAMPLED_FRACTION = 0.9
# Joules that samples in step with the load may miss, as a fraction: a window with more is flagged, and half the excess
# is added to half its bound. A square of 400 ms at a random phase misses less.
IN_STEP_FRACTION = 0.025
# Observed over modelled variance of the counter less the series, from which the window is flagged.
MISFIT = 6.0
# Readings within the first reach of a window determine the counter's grid; the second reach is for a counter read once
# a minute.
REACHES_S = (30.0, 65.0)
# Samples within this of an end of the window give its shape, in s; more if the counter was read farther away.
SHAPE_REACH_S = 8.0
# A counter value is at most this old when it is read, in s.
VALUE_AGE_S = 1.0
# Of longer windows only the samples near the ends are used: the middle cancels.
LONG_S = 60.0
# With more readings, the grid's period is taken from the first 20 s, in which the sampler searches for it.
MOST_READINGS = 400
BEGINNING_S = 20.0
# Standard deviation of the energy between two publications without a series, as a fraction.
UNSHAPED_SPREAD = 0.35
# A window may end this far past the last publication, in s.
OVERHANG_S = 0.25
# Samples needed for an estimate by the polled average.
MIN_POLLED = 2
# Standard deviation of the series' gain without a counter: twice their difference over 3 s.
LONE_GAIN_SPREAD = 3e-3
# Uncalibrated sensors: the power's range within 1 s of an end counts; 4 standard deviations of the mean of few values;
# an unseen part of the time may differ by 2 %, and so may the sensor.
NEAR_S = 1.0
UNSEEN_SIGMAS = 4.0
UNSEEN_FRACTION = 0.02
UNCALIBRATED_FRACTION = 0.02


def attempt_energy(trace: PowerTrace, start_ns: int, end_ns: int, rhythm: LoadPeriods | None) -> Energy:
    """Energy of every GPU between two CLOCK_MONOTONIC times; ``rhythm`` is the load's, ``None`` if unknown.

    Raises ``ValueError`` when the window is empty.
    """
    gpus = gpu_energies(trace, [(start_ns, end_ns)], rhythm)
    scope = "module" if any(gpu.is_module for gpu in trace.gpus) else "gpu_board"
    return Energy(start_ns=start_ns, end_ns=end_ns, gpus=gpus, scope=scope)


def gpu_energies(
    trace: PowerTrace, windows_ns: Sequence[tuple[int, int]], rhythm: LoadPeriods | None
) -> tuple[GpuEnergy, ...]:
    """Energy of every GPU within several windows together, ascending on CLOCK_MONOTONIC.

    The bound is narrower than the sum of the windows' bounds. Raises ``ValueError`` when a window is empty.
    """
    for start_ns, end_ns in windows_ns:
        if end_ns <= start_ns:
            raise ValueError(f"window ends at {end_ns} ns, not after its start at {start_ns} ns")
    within = None if rhythm is None else rhythm.within(windows_ns)
    return tuple(_gpu_energy(gpu, trace.offsets, windows_ns, within) for gpu in trace.gpus)


@dataclass(frozen=True)
class WindowEnergy:
    """Joules with their standard deviation.

    Attributes:
        gap: more than ``GAP_S`` of the windows lack samples.
        misfit: observed over modelled variance of the counter less the series.
        hidden_w: possible error of the mean power by a load in step with the samples.
    """

    energy_j: float
    sigma_j: float
    method: Method
    num_publications: int = 0
    gap: bool = False
    misfit: float = 1.0
    hidden_w: float = 0.0

    def contradicts(self, other: WindowEnergy) -> bool:
        """Whether two estimates differ by more than 3 % and more than their standard deviations explain."""
        explained_j = BOUND_SIGMAS * math.hypot(self.sigma_j, other.sigma_j)
        return abs(self.energy_j - other.energy_j) > max(explained_j, CONTRADICTION_FRACTION * self.energy_j)


@dataclass(frozen=True)
class Window:
    """One GPU's data around the windows, in seconds since the first window's start.

    ``readings`` is ``None`` if the counter fell within the windows.
    """

    spans_s: Windows
    readings: Readings | None
    samples: Samples
    sensor: SensorModel

    @property
    def start_s(self) -> float:
        """Start of the first span."""
        return self.spans_s[0][0]

    @property
    def end_s(self) -> float:
        """End of the last span."""
        return self.spans_s[-1][1]

    @property
    def length_s(self) -> float:
        """Sum of the spans' lengths."""
        return sum(end_s - start_s for start_s, end_s in self.spans_s)

    @property
    def is_long(self) -> bool:
        """Whether only the samples near both ends are used."""
        return self.end_s - self.start_s > LONG_S

    @cached_property
    def curve(self) -> Curve | None:
        """The series' energy over a window that is not long."""
        return None if self.is_long else series_curve(self.samples, self.spans_s, self.sensor)


def cut_window(
    gpu: GpuTrace, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]], *, whole: bool = False
) -> Window:
    """The data of one GPU around windows; with ``whole`` all samples, also those far from a long window's ends."""
    origin_ns = windows_ns[0][0]
    spans_s = [((start_ns - origin_ns) / 1e9, (end_ns - origin_ns) / 1e9) for start_ns, end_ns in windows_ns]
    readings = Readings.of(gpu.counter, origin_ns).without_resets(0.0, spans_s[-1][1])
    start_s, end_s = spans_s[0][0], spans_s[-1][1]
    if whole:
        near_s = [(start_s - 1, end_s + 1)]
    elif end_s - start_s <= LONG_S:
        near_s = [_shape_span_s(readings, start_s, end_s)]
    else:
        ends_s = spans_s if len(spans_s) > 1 else [(at_s, at_s) for at_s in (start_s, end_s)]
        near_s = [_shape_span_s(readings, *end) for end in ends_s]
    samples = samples_of(gpu, offsets, origin_ns, near_s)
    return Window(spans_s, readings, samples, gpu.sensor or UNKNOWN_SENSOR)


def _shape_span_s(readings: Readings | None, start_s: float, end_s: float) -> tuple[float, float]:
    """Span of the samples that give the shape: up to the nearest counter values, but at least ``SHAPE_REACH_S``."""
    first_s, last_s = start_s - SHAPE_REACH_S, end_s + SHAPE_REACH_S
    if readings is None:
        return first_s, last_s
    seen_s = readings.after_s[readings.changes]
    before_s, after_s = seen_s[seen_s <= start_s], seen_s[seen_s - VALUE_AGE_S >= end_s]
    if len(before_s) and before_s[-1] >= start_s - REACHES_S[0]:
        first_s = min(first_s, float(before_s[-1]) - VALUE_AGE_S)
    if len(after_s) and after_s[0] <= end_s + REACHES_S[0]:
        last_s = max(last_s, float(after_s[0]))
    return first_s, last_s


def _gpu_energy(
    gpu: GpuTrace,
    offsets: OffsetColumns,
    windows_ns: Sequence[tuple[int, int]],
    rhythm: LoadPeriods | None,
) -> GpuEnergy:
    window = cut_window(gpu, offsets, windows_ns)
    by_counter, curve = estimate_by_counter(window, window.curve), window.curve
    if curve is None and by_counter is None:
        every = cut_window(gpu, offsets, windows_ns, whole=True)
        curve = series_curve(every.samples, every.spans_s, every.sensor)
    by_series = estimate_by_series(window, curve)
    estimate, samples = by_counter or by_series, window.samples
    if estimate is None:
        near_s = (window.start_s - 3, window.end_s + 3)
        near_ns = [windows_ns[0][0] + int(at_s * 1e9) for at_s in near_s]
        samples = averages_of(gpu, near_ns[0], near_ns[1], windows_ns[0][0])
        estimate = estimate_by_average(window, samples)
    gap = estimate is not None and (estimate.gap or (curve is not None and curve.ends_in_gap(window.spans_s)))
    if estimate is not None and gap and BOUND_SIGMAS * estimate.sigma_j >= estimate.energy_j:
        estimate = None
    peak_w = max_power_w(gpu, offsets, windows_ns)
    contradiction = None
    if estimate is not None and by_counter is not None:
        compared = by_series or _mean_of_series(gpu, offsets, windows_ns, window)
        if compared is not None and by_counter.contradicts(compared):
            # The mean power can't exceed the peak: a counter above it is wrong.
            too_high = peak_w is not None and by_counter.energy_j > peak_w * window.length_s
            estimate, contradiction = (compared, by_counter) if too_high else (by_counter, compared)
    # Possible errors by a load in step with the samples, as fractions.
    deviation = math.inf if window.is_long else window.samples.deviation_fraction(window.spans_s)
    in_step, alias = 0.0, alias_fraction(rhythm, window.samples.period_s, deviation)
    if estimate is not None:
        alias = max(alias, estimate.hidden_w * window.length_s / max(estimate.energy_j, COUNTER_DIGIT_J))
        # A ripple contains what samples in step miss.
        if curve is not None and not curve.ripples:
            in_step = curve.within("in_step_j", window.spans_s) / max(estimate.energy_j, COUNTER_DIGIT_J)
            alias = max(alias, (in_step - IN_STEP_FRACTION) / 2)
    raised = {
        "clock_step": clock_was_set(offsets),
        "alias_risk": alias > FLAGGED_FRACTION or in_step > IN_STEP_FRACTION,
        "counter_reset": window.readings is None,
        "glitch": samples.num_glitches > 0,
        "gap": gap,
        "counter_vs_power": contradiction is not None,
        "insufficient": estimate is None,
        "sensor_misfit": estimate is not None and estimate.misfit > MISFIT,
        "uncalibrated": not window.sensor.calibrated,
        "part_time_sensor": window.sensor.seen_fraction < 1,
    }
    states = dict.fromkeys(flag for start_ns, end_ns in windows_ns for flag in state_flags(gpu, start_ns, end_ns))
    flags = (*states, *(name for name, up in raised.items() if up))
    if estimate is None:
        return GpuEnergy(uuid=gpu.uuid, index=gpu.index, method="none", flags=flags)
    half_j = _half_bound_j(window, estimate, samples, alias)
    low_j, high_j = estimate.energy_j - half_j, estimate.energy_j + half_j
    if contradiction is not None:
        other_j = BOUND_SIGMAS * contradiction.sigma_j
        low_j, high_j = min(low_j, contradiction.energy_j - other_j), max(high_j, contradiction.energy_j + other_j)
    return GpuEnergy(
        uuid=gpu.uuid,
        index=gpu.index,
        energy_j=estimate.energy_j,
        energy_low_j=max(0.0, low_j),
        energy_high_j=high_j,
        mean_power_w=estimate.energy_j / window.length_s,
        # Samples may miss the peak, which is no lower than the mean.
        max_power_w=None if peak_w is None else max(peak_w, estimate.energy_j / window.length_s),
        method=estimate.method,
        num_publications=estimate.num_publications,
        flags=flags,
    )


def _mean_of_series(
    gpu: GpuTrace, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]], window: Window
) -> WindowEnergy | None:
    """Mean power of the series times the length: what a long window is checked with; ``None`` if many samples lack."""
    power_mw = power_within_mw(gpu.series, offsets, windows_ns)
    power_mw = power_mw[(power_mw >= GLITCH_W * 1e3) & (power_mw <= IMPOSSIBLE_W * 1e3)]
    if len(power_mw) * (window.samples.period_s or 0.0) < LEAST_SAMPLED_FRACTION * window.length_s:
        return None
    energy_j = float(power_mw.mean()) / 1e3 * window.length_s
    return WindowEnergy(energy_j, LONE_GAIN_SPREAD * energy_j, "series")


def _half_bound_j(window: Window, estimate: WindowEnergy, samples: Samples, alias: float) -> float:
    """Half the bound's width. ``samples`` are those of the estimate, ``alias`` is a fraction of the energy."""
    energy_j, power_w = estimate.energy_j, estimate.energy_j / window.length_s
    astray_j = 0.0
    if estimate.method in {"counter", "counter+series"} and power_w > 0:
        # A publication far from its grid counts less where many values determine the joules.
        part = (estimate.sigma_j / (power_w * PUBLICATION_BLUR_S)) ** 2 / 2
        astray_j = ASTRAY_S * power_w * min(part, 1.0)
    half_j = math.hypot(BOUND_SIGMAS * estimate.sigma_j, astray_j) + COUNTER_DIGIT_J
    half_j += (BOUND_FLOOR_FRACTION + alias) * energy_j
    return half_j if window.sensor.resolves else half_j + _uncalibrated_j(window, samples)


def _uncalibrated_j(window: Window, samples: Samples) -> float:
    """Addition to half the bound for a sensor that pybench has not measured, or that sees part of the time.

    A reading belongs to some moment within the sensor's blur: the power's range times the blur is unknown at each end.
    Unseen power scatters like the seen power nearby. A load in step with the sensor can be off by its whole swing: see
    the flag ``part_time_sensor``.
    """
    sensor = window.sensor
    ends_j = 0.0
    for at_s in np.ravel(window.spans_s).tolist():
        near_end_w = samples.near(at_s - NEAR_S, at_s + NEAR_S).power_w
        ends_j += float(np.ptp(near_end_w)) * sensor.blur_s if len(near_end_w) else 0.0
    near_w = samples.near(window.start_s - NEAR_S, window.end_s + NEAR_S).power_w
    if not len(near_w):
        return ends_j
    mean_w, num_values = float(np.mean(near_w)), max(window.length_s / sensor.period_s, 1.0)
    scatter_w = UNSEEN_SIGMAS * float(np.std(near_w)) / math.sqrt(num_values) + UNSEEN_FRACTION * mean_w
    unseen = 1 - sensor.seen_fraction
    return ends_j + (unseen * scatter_w + UNCALIBRATED_FRACTION * mean_w) * window.length_s


def estimate_by_counter(window: Window, curve: Curve | None) -> WindowEnergy | None:
    """By the counter, shaped by the series if ``curve`` covers the ends; ``None`` unless readings span the windows.

    Several long windows are estimated one by one, and their standard deviations added.
    """
    readings = window.readings
    if readings is None:
        return None
    if window.is_long and len(window.spans_s) > 1:
        parts = [Window([span], readings, window.samples, window.sensor) for span in window.spans_s]
        return _sum([estimate_by_counter(part, None) for part in parts])
    start_s, end_s = window.start_s, window.end_s
    ends: list[Windows] = [[(start_s, start_s)], [(end_s, end_s)]] if window.is_long else [window.spans_s]
    near = [close for end in ends if (close := _near(readings, end)) is not None]
    if len(near) < len(ends):
        return None
    shapes: list[Curve] = []
    for end in ends:
        shape = curve
        if shape is None:
            span_s = _shape_span_s(readings, end[0][0], end[-1][1])
            shape = series_curve(window.samples.near(*span_s), end, window.sensor)
        if shape is not None and shape.covers(end[0][0], end[-1][1]):
            shapes.append(shape)
    shaped = len(shapes) == len(ends)
    changes_s = np.concatenate([part.after_s[part.changes] for part in near])
    if not shaped and (changes_s.min() > start_s or changes_s.max() < end_s):
        return None
    bridged = _bridged(readings, near, shapes if shaped else [], window)
    if bridged is None:
        return None
    shared_j = []
    for shape in shapes if shaped else ():
        first_s, last_s = float(shape.time_s[0]), float(shape.time_s[-1])
        inside = [(min(max(start, first_s), last_s), max(min(end, last_s), first_s)) for start, end in window.spans_s]
        shared_j.append(shape.shared_sigma_j(inside))
    passed = np.searchsorted(readings.after_s[readings.changes], window.spans_s, side="right")
    return WindowEnergy(
        bridged.energy_j,
        float(np.linalg.norm([bridged.sigma_j, *shared_j])),
        "counter+series" if shaped else "counter",
        num_publications=int((passed[:, 1] - passed[:, 0]).sum()),
        gap=shaped and not window.is_long and window.samples.have_gap(window.spans_s),
        misfit=bridged.misfit,
        hidden_w=max((shape.hidden_w for shape in shapes if shaped), default=0.0),
    )


def _near(readings: Readings, windows_s: Windows) -> Readings | None:
    """The readings around windows; ``None`` if the counter was read on one side only."""
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    for reach_s in REACHES_S:
        near = readings.near(start_s - reach_s, end_s + reach_s)
        changes_s = near.after_s[near.changes]
        if (
            len(changes_s) >= MIN_CHANGES
            and changes_s[0] <= start_s + OVERHANG_S
            and changes_s[-1] >= end_s - OVERHANG_S
        ):
            return near
    return None


def _bridged(readings: Readings, near: Sequence[Readings], curves: Sequence[Curve], window: Window) -> Bridged | None:
    """Join the counter with the curves; without a curve, with straight lines between its own values."""
    lags_s = (window.sensor.lag_low_s, window.sensor.lag_high_s)
    many = len(readings.after_s) > MOST_READINGS
    grids = candidate_grids(near[0], readings.beginning(BEGINNING_S)) if many else candidate_grids(readings)
    if curves:
        hypotheses = _covered(_placed(near, grids), curves, window.spans_s)
        if not hypotheses:
            return None
        return bridge(hypotheses, curves, window.spans_s, lags_s)
    together = joined(near)
    whole = [(anchors, grid) for grid in grids if (anchors := grid.place(together)) is not None]
    anchors = evenest(whole)[0] if whole else without_grid(together)
    pieces_j = np.diff(anchors.energy_j)
    unshaped = Curve.of_pieces(anchors.time_s, pieces_j, UNSHAPED_SPREAD * pieces_j)
    found = bridge([([anchors], 1.0)], [unshaped], window.spans_s, lags_s, least_scale=1.0)
    return Bridged(found.energy_j, found.sigma_j, 1.0)


def _placed(near: Sequence[Readings], grids: Sequence[PublicationGrid]) -> list[tuple[list[Anchors], float]]:
    """The anchors of each part by one grid of each period; without a grid if none holds the readings."""
    by_period: dict[float, tuple[list[Anchors], float]] = {}
    for grid in grids:
        if grid.period_s in by_period:
            continue
        parts = [anchors for part in near if (anchors := grid.place(part)) is not None]
        if len(parts) == len(near):
            by_period[grid.period_s] = (parts, grid.weight)
    return list(by_period.values()) or [([without_grid(part) for part in near], 1.0)]


def _covered(hypotheses: list[tuple[list[Anchors], float]], curves: Sequence[Curve], windows_s: Windows) -> Hypotheses:
    """The anchors that the curves cover by every hypothesis; none if a curve has no anchor.

    The shape of a periodic load is unknown outside its folded samples. If anchors within them enclose the windows,
    only these are used.
    """
    for part, curve in enumerate(curves):
        times_s = np.array([anchors[part].time_s for anchors, _ in hypotheses])
        inside = np.all((times_s >= curve.time_s[0]) & (times_s <= curve.time_s[-1]), axis=0)
        if not np.any(inside):
            return []
        if len(curve.ripples) == 1:
            (ripple,) = curve.ripples
            folded = inside & np.all((times_s >= ripple.start_s) & (times_s <= ripple.end_s), axis=0)
            if np.any(times_s[0, folded] <= windows_s[0][0]) and np.any(times_s[0, folded] >= windows_s[-1][1]):
                inside = folded
        for anchors, _ in hypotheses:
            anchors[part] = anchors[part].keep(inside)
    return hypotheses


def _sum(estimates: Sequence[WindowEnergy | None]) -> WindowEnergy | None:
    known = [estimate for estimate in estimates if estimate is not None]
    if len(known) < len(estimates):
        return None
    return WindowEnergy(
        sum(estimate.energy_j for estimate in known),
        sum(estimate.sigma_j for estimate in known),
        "counter" if any(estimate.method == "counter" for estimate in known) else "counter+series",
        sum(estimate.num_publications for estimate in known),
        any(estimate.gap for estimate in known),
        misfit=max(estimate.misfit for estimate in known),
        hidden_w=max(estimate.hidden_w for estimate in known),
    )


def estimate_by_series(window: Window, curve: Curve | None) -> WindowEnergy | None:
    """By the series alone; ``None`` unless it spans the windows."""
    spans_s = window.spans_s
    if curve is None or not curve.covers(window.start_s, window.end_s):
        return None
    energy_j = float(np.sum(np.diff(curve.at(spans_s))))
    sigmas_j = (
        math.sqrt(curve.within("variance_j2", spans_s)),
        LONE_GAIN_SPREAD * energy_j,
        curve.shared_sigma_j(spans_s),
        curve.mean_sigma_w * window.length_s,
    )
    return WindowEnergy(energy_j, math.hypot(*sigmas_j), "series", gap=curve.has_gap(spans_s), hidden_w=curve.hidden_w)


def estimate_by_average(window: Window, averages: Samples) -> WindowEnergy | None:
    """By the polled average, which trails by its span; ``None`` unless it spans the windows."""
    time_s, average_w = averages.time_s, averages.power_w
    start_s, end_s = window.start_s, window.end_s
    if len(time_s) < MIN_POLLED or time_s[0] > start_s or time_s[-1] < end_s:
        return None
    pieces_j = np.diff(time_s) * (average_w[1:] + average_w[:-1]) / 2
    curve = Curve.of_pieces(time_s, pieces_j, np.zeros_like(pieces_j))
    energy_j = float(np.sum(np.diff(curve.at(window.spans_s))))
    span_s = window.sensor.average_span_s
    lately_w = average_w[(time_s >= start_s - span_s) & (time_s <= end_s + span_s)]
    trailing_j = len(window.spans_s) * float(np.ptp(lately_w)) * span_s / 2
    sigma_j = math.hypot(trailing_j, LONE_GAIN_SPREAD * energy_j)
    return WindowEnergy(energy_j, sigma_j, "polled", gap=curve.has_gap(window.spans_s))
