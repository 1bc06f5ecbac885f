"""The energy of every GPU of a trace, in one window or in several together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pybench.model.record import Energy, GpuEnergy
from pybench.power.energy.aliasing import FLAGGED_FRACTION, LoadPeriods, alias_fraction
from pybench.power.energy.anchors import PUBLICATION_BLUR_S
from pybench.power.energy.curve import Curve, Windows
from pybench.power.energy.flags import clock_was_set, state_flags
from pybench.power.energy.modest import modest_half_width_j
from pybench.power.energy.readings import Readings
from pybench.power.energy.series import Samples, highest_power_w, power_within_mw, samples_of, series_curve
from pybench.power.energy.times import seconds_since
from pybench.power.energy.window import (
    LONG_S,
    Estimate,
    counter_estimate,
    polled_estimate,
    series_estimate,
    shape_span_s,
)
from pybench.power.sensor import UNKNOWN_SENSOR
from pybench.power.trace import MISSING, GpuTrace, OffsetColumns, PowerTrace

# Truth lay inside this many standard deviations and this floor in over 99 % of windows of every load tried.
BOUND_SIGMAS = 3.0
BOUND_FLOOR_FRACTION = 5e-4
# One publication of the counter in twenty is 1.5 to 4 ms beside its grid: more than a standard deviation covers.
ASTRAY_S = 2.2e-3
# NVML counts whole mJ, at both ends of a window.
COUNTER_DIGIT_J = 2e-3
DISAGREEMENT_FRACTION = 0.03
# Joules that samples in step with the load may miss, as a part of all.
IN_STEP_FRACTION = 0.025
# Variances of the counter beside the series, over those of the sensor model.
MISFIT = 6.0


def attempt_energy(trace: PowerTrace, start_ns: int, end_ns: int, rhythm: LoadPeriods | None) -> Energy:
    """Energy of every GPU between two CLOCK_MONOTONIC times; ``rhythm`` is the load's, if it has one.

    Raises ``ValueError`` when the window is empty.
    """
    gpus = gpu_energies(trace, [(start_ns, end_ns)], rhythm)
    scope = "module" if any(gpu.scope == "module" for gpu in trace.gpus) else "gpu_board"
    return Energy(start_ns=start_ns, end_ns=end_ns, gpus=gpus, scope=scope)


def gpu_energies(
    trace: PowerTrace, windows_ns: Sequence[tuple[int, int]], rhythm: LoadPeriods | None
) -> tuple[GpuEnergy, ...]:
    """Energy of every GPU within all of several windows, one after the other on CLOCK_MONOTONIC.

    Known better than the windows' sum: what one of them has too much is often another's, or lies between them.
    Raises ``ValueError`` when a window is empty.
    """
    for start_ns, end_ns in windows_ns:
        if end_ns <= start_ns:
            raise ValueError(f"window ends at {end_ns} ns, not after its start at {start_ns} ns")
    within = None if rhythm is None else rhythm.within(windows_ns)
    clock_set = clock_was_set(trace.offsets)
    return tuple(_gpu_energy(gpu, trace.offsets, windows_ns, within, clock_set=clock_set) for gpu in trace.gpus)


def _gpu_energy(
    gpu: GpuTrace,
    offsets: OffsetColumns,
    windows_ns: Sequence[tuple[int, int]],
    rhythm: LoadPeriods | None,
    *,
    clock_set: bool,
) -> GpuEnergy:
    sensor = gpu.sensor or UNKNOWN_SENSOR
    origin_ns, last_ns = windows_ns[0][0], windows_ns[-1][1]
    windows_s = [((start_ns - origin_ns) / 1e9, (end_ns - origin_ns) / 1e9) for start_ns, end_ns in windows_ns]
    unbroken = Readings.of(gpu.counter, origin_ns).without_resets(0.0, (last_ns - origin_ns) / 1e9)
    samples = samples_of(gpu, offsets, origin_ns, _spans_s(unbroken, windows_s))
    whole = windows_s[-1][1] - windows_s[0][0] <= LONG_S
    curve = series_curve(samples, windows_s, sensor) if whole else None
    by_counter = counter_estimate(unbroken, samples, windows_s, sensor, curve) if unbroken is not None else None
    if curve is None and by_counter is None:
        every = samples_of(gpu, offsets, origin_ns, [(windows_s[0][0] - 1, windows_s[-1][1] + 1)])
        curve = series_curve(every, windows_s, sensor)
    by_series = series_estimate(curve, windows_s)
    estimate, used = by_counter or by_series, samples
    if estimate is None:
        used = _averages_of(gpu, origin_ns, windows_s)
        estimate = polled_estimate(used, windows_s, sensor)
    gap = estimate is not None and (estimate.gap or (curve is not None and curve.ends_in_gap(windows_s)))
    if estimate is not None and gap and BOUND_SIGMAS * estimate.sigma_j >= estimate.energy_j:
        estimate = None
    length_s = sum(end_s - start_s for start_s, end_s in windows_s)
    hidden = 0.0 if estimate is None else estimate.hidden_w * length_s / max(estimate.energy_j, COUNTER_DIGIT_J)
    deviation = samples.deviation_fraction(windows_s) if whole else math.inf
    alias = max(alias_fraction(rhythm, samples.period_s, deviation), hidden)
    raised = {
        "clock_step": clock_set,
        "alias_risk": alias > FLAGGED_FRACTION or _in_step(curve, windows_s, estimate),
        "counter_reset": unbroken is None,
        "glitch": used.num_glitches > 0,
        "gap": gap,
        "counter_vs_power": _disagree(by_counter, by_series),
        "insufficient": estimate is None,
        "sensor_misfit": estimate is not None and estimate.misfit > MISFIT,
        "uncalibrated": not sensor.calibrated,
        "part_time_sensor": sensor.seen_fraction < 1,
    }
    states = dict.fromkeys(flag for start_ns, end_ns in windows_ns for flag in state_flags(gpu, start_ns, end_ns))
    flags = (*states, *(name for name, up in raised.items() if up))
    max_power_w = _max_power_w(gpu, offsets, windows_ns)
    modest_j = 0.0 if sensor.resolves or estimate is None else modest_half_width_j(used, windows_s, sensor)
    return _result(gpu, estimate, length_s, flags, max_power_w=max_power_w, alias=alias, modest_j=modest_j)


def _spans_s(readings: Readings | None, windows_s: Windows) -> Windows:
    """Where samples matter: around the windows, but not far from both ends of a long one."""
    start_s, end_s = windows_s[0][0], windows_s[-1][1]
    if end_s - start_s <= LONG_S:
        return [shape_span_s(readings, start_s, end_s)]
    apart = windows_s if len(windows_s) > 1 else [(at_s, at_s) for at_s in (start_s, end_s)]
    return [shape_span_s(readings, *window_s) for window_s in apart]


def _result(
    gpu: GpuTrace,
    estimate: Estimate | None,
    length_s: float,
    flags: tuple[str, ...],
    *,
    max_power_w: float | None,
    alias: float,
    modest_j: float,
) -> GpuEnergy:
    if estimate is None:
        return GpuEnergy(uuid=gpu.uuid, index=gpu.index, method="none", flags=flags)
    energy_j = estimate.energy_j
    doubt_j = float(np.hypot(BOUND_SIGMAS * estimate.sigma_j, _astray_j(estimate, length_s)))
    half_j = doubt_j + (BOUND_FLOOR_FRACTION + alias) * energy_j + COUNTER_DIGIT_J + modest_j
    return GpuEnergy(
        uuid=gpu.uuid,
        index=gpu.index,
        energy_j=energy_j,
        energy_low_j=max(0.0, energy_j - half_j),
        energy_high_j=energy_j + half_j,
        mean_power_w=energy_j / length_s,
        max_power_w=max_power_w,
        method=estimate.method,
        num_publications=estimate.num_publications,
        flags=flags,
    )


def _astray_j(estimate: Estimate, length_s: float) -> float:
    """What a publication beside its grid may cost: its part, where many values together know the joules better."""
    power_w = estimate.energy_j / length_s
    if estimate.method not in {"counter", "counter+series"} or power_w <= 0:
        return 0.0
    part = (estimate.sigma_j / (power_w * PUBLICATION_BLUR_S)) ** 2 / 2
    return ASTRAY_S * power_w * min(part, 1.0)


def _in_step(curve: Curve | None, windows_s: Windows, estimate: Estimate | None) -> bool:
    """Whether the load's jumps are so many, and keep step with the samples so well, that joules may be off by much."""
    if curve is None or estimate is None or curve.ripples:
        return False
    return curve.within("in_step_j", windows_s) > IN_STEP_FRACTION * estimate.energy_j


def _averages_of(gpu: GpuTrace, origin_ns: int, windows_s: Windows) -> Samples:
    """The polled average around the windows."""
    near_ns = [origin_ns + int((at_s + off_s) * 1e9) for at_s, off_s in ((windows_s[0][0], -3), (windows_s[-1][1], 3))]
    t_ns = np.asarray(gpu.polled.t_ns, dtype=np.int64)
    first, last = np.searchsorted(t_ns, near_ns)
    average_mw = np.asarray(gpu.polled.average_mw[first:last], dtype=np.int64)
    known = average_mw != MISSING
    return Samples.of(seconds_since(t_ns[first:last], origin_ns)[known], average_mw[known] / 1e3)


def _disagree(by_counter: Estimate | None, by_series: Estimate | None) -> bool:
    if by_counter is None or by_series is None:
        return False
    doubt_j = BOUND_SIGMAS * float(np.hypot(by_counter.sigma_j, by_series.sigma_j))
    return abs(by_counter.energy_j - by_series.energy_j) > max(doubt_j, DISAGREEMENT_FRACTION * by_counter.energy_j)


def _max_power_w(gpu: GpuTrace, offsets: OffsetColumns, windows_ns: Sequence[tuple[int, int]]) -> float | None:
    """Highest reading within the windows, by the series or else by the polled instant power."""
    highest_w = highest_power_w(power_within_mw(gpu.series, offsets, windows_ns))
    if highest_w is not None:
        return highest_w
    t_ns, instant_mw = np.asarray(gpu.polled.t_ns, dtype=np.int64), np.asarray(gpu.polled.instant_mw, dtype=np.int64)
    parts = [
        instant_mw[np.searchsorted(t_ns, start_ns) : np.searchsorted(t_ns, end_ns, side="right")]
        for start_ns, end_ns in windows_ns
    ]
    return highest_power_w(np.concatenate(parts))
