"""Joules of every GPU in one window, or in several together, from a power trace, with a bound.

Sources in order: the energy counter with the driver's series as its shape; the counter alone; the series alone; the
polled average. The scope is the GPU board as NVML counts it. The board's gain error, about ±5 %, is not in the bound:
it cancels in ratios on one board. Flags are reasons to doubt the joules; ``docs/results.md`` describes each.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pybench.core.node_driver import THROTTLE_REASONS
from pybench.machine.extension import REMEDY, extension_fault
from pybench.model.errors import MachineError
from pybench.model.record import Energy, GpuEnergy

# Before the modules that import the extension.
if (_FAULT := extension_fault("_energy")) is not None:
    raise MachineError(f"energy estimate: {_FAULT}; {REMEDY}")

from pybench.power.bridge import Window, WindowEnergy, cut_window, estimate_by_counter
from pybench.power.counter import PUBLICATION_BLUR_S
from pybench.power.curve import UNKNOWN_PART, Curve, series_curve
from pybench.power.in_step import FLAGGED_FRACTION, LoadPeriods, alias_fraction
from pybench.power.samples import GLITCH_W, IMPOSSIBLE_W, Samples, max_power_w, power_within_mw, samples_of
from pybench.power.trace import MISSING, GpuTrace, OffsetColumns, PowerTrace, SeriesColumns

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
# A window is flagged from this ratio on: observed over modelled variance of the counter less the series.
MISFIT = 6.0
# Samples needed for an estimate by the polled average.
MIN_POLLED = 2
# Standard deviation of the series' gain without a counter: twice their difference over 3 s.
LONE_GAIN_SPREAD = 3e-3
# State is read each second, and soon after an end of a window: readings this near to an end count.
NEAREST_NS = 1_500_000_000
# Power changes by about 0.2 % per °C, so 10 °C move it by as much as the intervals of a verdict.
DRIFT_C = 10
# Uncalibrated sensors: the power's range up to 1 s beyond the window counts; 4 standard deviations of the mean of few
# values; the sensor may differ by 2 %, and so may an unseen part of the time.
NEAR_S = 1.0
UNSEEN_SIGMAS = 4.0
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


def _gpu_energy(
    gpu: GpuTrace, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]], rhythm: LoadPeriods | None
) -> GpuEnergy:
    window, peak_w = cut_window(gpu, offsets, windows_ns), max_power_w(gpu, offsets, windows_ns)
    estimate, check, curve, samples = _by_first_source(gpu, offsets, windows_ns, window)
    gap = estimate is not None and (estimate.gap or (curve is not None and curve.ends_in_gap(window.spans_s)))
    if estimate is not None and gap and BOUND_SIGMAS * estimate.sigma_j >= estimate.energy_j:
        estimate = None
    contradicting = None
    if estimate is not None and check is not None:
        errors_j = BOUND_SIGMAS * math.hypot(estimate.sigma_j, check.sigma_j)
        if abs(estimate.energy_j - check.energy_j) > max(errors_j, CONTRADICTION_FRACTION * estimate.energy_j):
            # The mean power can't exceed the peak: a counter above it is wrong.
            too_high = peak_w is not None and estimate.energy_j > peak_w * window.length_s
            estimate, contradicting = (check, estimate) if too_high else (estimate, check)
    missed, alias = _alias_fractions(window, curve, estimate, rhythm)
    raised = {
        "clock_step": len(offsets.set_by_ns) > 0 and bool(np.ptp(offsets.set_by_ns)),
        "alias_risk": alias > FLAGGED_FRACTION or missed > IN_STEP_FRACTION,
        "counter_reset": window.readings is None,
        "glitch": samples.num_glitches > 0,
        "gap": gap,
        "counter_vs_power": contradicting is not None,
        "insufficient": estimate is None,
        "sensor_misfit": estimate is not None and estimate.misfit > MISFIT,
        "uncalibrated": not window.sensor.calibrated,
        "part_time_sensor": window.sensor.seen_fraction < 1,
    }
    states = dict.fromkeys(flag for start_ns, end_ns in windows_ns for flag in state_flags(gpu, start_ns, end_ns))
    flags = (*states, *(name for name, up in raised.items() if up))
    unknown = GpuEnergy(uuid=gpu.uuid, index=gpu.index, method="none", flags=flags)
    if estimate is None:
        return unknown
    bounds_j = [(estimate.energy_j, _half_bound_j(window, estimate, samples, alias))]
    if contradicting is not None:
        bounds_j.append((contradicting.energy_j, BOUND_SIGMAS * contradicting.sigma_j))
    mean_w = estimate.energy_j / window.length_s
    return replace(
        unknown,
        energy_j=estimate.energy_j,
        energy_low_j=max(0.0, min(energy_j - half_j for energy_j, half_j in bounds_j)),
        energy_high_j=max(energy_j + half_j for energy_j, half_j in bounds_j),
        mean_power_w=mean_w,
        # Samples may miss the peak, which is no lower than the mean.
        max_power_w=None if peak_w is None else max(peak_w, mean_w),
        method=estimate.method,
        num_publications=estimate.num_publications,
    )


def _by_first_source(
    gpu: GpuTrace, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]], window: Window
) -> tuple[WindowEnergy | None, WindowEnergy | None, Curve | None, Samples]:
    """The estimate by the first source that spans the windows, and what checks the counter's; its curve and samples."""
    origin_ns = windows_ns[0][0]
    curve = None if window.is_long else series_curve(window.samples, window.spans_s, window.sensor)
    by_counter = estimate_by_counter(window, curve)
    if curve is None and by_counter is None:
        every = samples_of(gpu.series, offsets, origin_ns, [(window.start_s - 1, window.end_s + 1)])
        curve = series_curve(every, window.spans_s, window.sensor)
    by_series = estimate_by_series(window, curve)
    if by_counter is not None:
        check = by_series or _mean_of_series(gpu, offsets, windows_ns, window)
        return by_counter, check, curve, window.samples
    if by_series is not None:
        return by_series, None, curve, window.samples
    polled = SeriesColumns(realtime_ns=gpu.polled.t_ns, power_mw=gpu.polled.average_mw)
    averages = samples_of(polled, OffsetColumns(), origin_ns, [(window.start_s - 3, window.end_s + 3)])
    return estimate_by_average(window, averages), None, curve, averages


def _alias_fractions(
    window: Window, curve: Curve | None, estimate: WindowEnergy | None, rhythm: LoadPeriods | None
) -> tuple[float, float]:
    """Joules that samples in step with the load miss, and the possible error of the joules by that, as fractions."""
    deviation = math.inf if window.is_long else window.samples.deviation_fraction(window.spans_s)
    alias = alias_fraction(rhythm, window.samples.period_s, deviation)
    if estimate is None:
        return 0.0, alias
    energy_j = max(estimate.energy_j, COUNTER_DIGIT_J)
    hidden = estimate.hidden_w * window.length_s / energy_j
    # A ripple contains what samples in step miss.
    missed = 0.0 if curve is None or curve.ripples else curve.within("in_step_j", window.spans_s) / energy_j
    return missed, max(alias, hidden, (missed - IN_STEP_FRACTION) / 2)


def state_flags(gpu: GpuTrace, start_ns: int, end_ns: int) -> list[str]:
    """Flags of a window that do not depend on the energy."""
    reasons = around(gpu.slow.clock_event_reasons, gpu.slow.t_ns, start_ns, end_ns)
    temperature_c = around(gpu.slow.temperature_c, gpu.slow.t_ns, start_ns, end_ns)
    stall_start_ns = np.asarray(gpu.stalls.start_ns, dtype=np.int64)
    stall_end_ns = np.asarray(gpu.stalls.end_ns, dtype=np.int64)
    stalled = gpu.state == "stalled" or bool(np.any((stall_start_ns < end_ns) & (stall_end_ns > start_ns)))
    raised = {
        gpu.state: gpu.state not in {"ok", "stalled"},
        "stalled": stalled,
        "throttled": bool(int(np.bitwise_or.reduce(reasons)) & THROTTLE_REASONS),
        "temperature_drift": bool(len(temperature_c)) and bool(np.ptp(temperature_c) > DRIFT_C),
        "dropped_records": gpu.dropped_records > 0,
        "mig": bool(gpu.mig),
        "shared_board": bool(gpu.shared_board),
        "module_scope": gpu.is_module,
    }
    return [name for name, up in raised.items() if up]


def around(
    values: Sequence[int], times_ns: Sequence[int], start_ns: int, end_ns: int, nearest_ns: int = NEAREST_NS
) -> npt.NDArray[np.int64]:
    """Known values within the window, and the nearest on each side if it is within ``nearest_ns``.

    Times ascend. ``values`` may be empty: a column that was never filled.
    """
    if len(values) != len(times_ns):
        return np.array([], dtype=np.int64)
    first, end = bisect_left(times_ns, start_ns), bisect_right(times_ns, end_ns)
    if first > 0 and times_ns[first - 1] >= start_ns - nearest_ns:
        first -= 1
    if end < len(times_ns) and times_ns[end] <= end_ns + nearest_ns:
        end += 1
    read = np.asarray(values[first:end], dtype=np.int64)
    return np.asarray(read[read != MISSING])


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
    sensor, near_w = window.sensor, samples.near(window.start_s - NEAR_S, window.end_s + NEAR_S).power_w
    if not len(near_w):
        return 0.0
    unseen, num_values = 1 - sensor.seen_fraction, max(window.length_s / sensor.period_s, 1.0)
    ends_j = 2 * len(window.spans_s) * float(np.ptp(near_w)) * sensor.blur_s
    scatter_w = unseen * UNSEEN_SIGMAS * float(np.std(near_w)) / math.sqrt(num_values)
    return ends_j + (scatter_w + (1 + unseen) * UNCALIBRATED_FRACTION * float(np.mean(near_w))) * window.length_s


def estimate_by_series(window: Window, curve: Curve | None) -> WindowEnergy | None:
    """By the series alone; ``None`` unless it spans the windows."""
    spans_s = window.spans_s
    if curve is None or not curve.covers(spans_s):
        return None
    energy_j = float(np.sum(np.diff(curve.at(spans_s))))
    sigmas_j = (
        math.sqrt(curve.within("variance_j2", spans_s)),
        LONE_GAIN_SPREAD * energy_j,
        curve.shared_sigma_j(spans_s),
        UNKNOWN_PART * curve.in_step_w * window.length_s,
    )
    return WindowEnergy(
        energy_j, math.hypot(*sigmas_j), "series", gap=window.samples.have_gap(spans_s), hidden_w=curve.hidden_w
    )


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
    return WindowEnergy(energy_j, sigma_j, "polled", gap=averages.have_gap(window.spans_s))
