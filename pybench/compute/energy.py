"""Joules of a window, from a power trace.

Scope is the GPU board as NVML counts it: NVSwitch, PCIe switches, CPU and host memory are outside. A board's own gain
error, about ±5 %, is systematic: it cancels in ratios on one board and is apart from the bounds here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench.model.record import Energy, GpuEnergy
from pybench.model.trace import MISSING, CounterColumns, GpuTrace, PowerTrace

Column = npt.NDArray[np.float64]

# The driver samples every 20 ms and publishes the counter every 100 ms (H200, driver 580).
SAMPLE_PERIOD_S = 0.020
COUNTER_PERIOD_S = 0.100
# The polled average trails by up to its own span.
AVERAGE_SPAN_S = 1.0
# Two points span an interval; one spans none.
MIN_POINTS = 2
GAP_S = 3 * COUNTER_PERIOD_S
DISAGREEMENT_FRACTION = 0.03
# Load at the sensor's own period, or a harmonic, aliases: the counter was off by up to 9 %.
ALIAS_FRACTION = 0.09
ALIAS_HARMONICS = (1, 2, 3, 4)
ALIAS_WIDTH_FRACTION = 0.10
CLOCK_STEP_NS = 1_000_000
# NVML counts whole mJ, at both ends of a window, and tells whole mW.
COUNTER_DIGIT_J = 2e-3
POWER_DIGIT_W = 1e-3
# So many places are tried between the earliest and the latest shift.
SHIFT_STEPS = 9
# NVML clock event reasons: hardware slowdown, software and hardware thermal slowdown, power brake.
THROTTLE_REASONS = 0x08 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class _Doubt:
    """What is not known about a curve.

    All its times may be late or early by ``shift_s`` together and each one by ``edge_s`` on its own. Where power
    changed, the change may have come anywhere within ``resolution_s``; that matters up to ``reach_s`` from an end of
    the window, beyond which the counter has the true sum.
    """

    shift_s: float = 0.0
    edge_s: float = 0.0
    resolution_s: float = 0.0
    reach_s: float = 0.0


# A sample may stand for the time before or after its stamp. Without the counter, every change in the window matters.
_SERIES_DOUBT = _Doubt(shift_s=SAMPLE_PERIOD_S, resolution_s=SAMPLE_PERIOD_S, reach_s=math.inf)
_POLLED_DOUBT = _Doubt(shift_s=AVERAGE_SPAN_S, resolution_s=AVERAGE_SPAN_S, reach_s=math.inf)


@dataclass(frozen=True)
class _Curve:
    """Cumulative energy in J over seconds since the window's start."""

    time_s: Column
    energy_j: Column
    doubt: _Doubt
    method: str

    def covers(self, start_s: float, end_s: float) -> bool:
        return bool(self.time_s[0] <= start_s and end_s <= self.time_s[-1])

    def between(self, start_s: float, end_s: float) -> float:
        low, high = np.interp([start_s, end_s], self.time_s, self.energy_j)
        return float(high - low)

    def has_gap(self, length_s: float) -> bool:
        inside = (self.time_s[1:] > 0) & (self.time_s[:-1] < length_s)
        return bool(np.any(np.diff(self.time_s)[inside] > GAP_S))

    def doubt_j(self, length_s: float) -> float:
        """How far the energy between 0 and ``length_s`` may be off; a shift of a steady load changes nothing."""
        shifts_s = np.linspace(-self.doubt.shift_s, self.doubt.shift_s, SHIFT_STEPS)
        shifted_j = max(abs(self.between(s, length_s + s) - self.between(0.0, length_s)) for s in shifts_s)
        edges_j = sum(
            max(self.between(at_s - self.doubt.edge_s, at_s), self.between(at_s, at_s + self.doubt.edge_s))
            for at_s in (0.0, length_s)
        )
        # Halved: the estimate puts a change in the middle of the time in which it came.
        changes_j = self._changes_w(length_s) * self.doubt.resolution_s / 2
        return shifted_j + edges_j + changes_j + COUNTER_DIGIT_J + POWER_DIGIT_W * length_s

    def _changes_w(self, length_s: float) -> float:
        """Sum of all rises and falls of power that matter for a window."""
        middle_s = (self.time_s[1:] + self.time_s[:-1]) / 2
        margin_s = min(self.doubt.reach_s, COUNTER_PERIOD_S)
        from_end_s = np.minimum(np.abs(middle_s), np.abs(middle_s - length_s))
        matters = (middle_s >= -margin_s) & (middle_s <= length_s + margin_s) & (from_end_s <= self.doubt.reach_s)
        power_w = np.diff(self.energy_j) / np.diff(self.time_s)
        changes_w = np.abs(np.diff(power_w))
        return float(np.sum(changes_w[matters[1:] | matters[:-1]]))


def attempt_energy(trace: PowerTrace, start_ns: int, end_ns: int, step_period_s: float | None) -> Energy:
    """Energy of every GPU between two CLOCK_MONOTONIC times; ``step_period_s`` is the load's own period, if it has one.

    The counter is the authority, shaped between its publications by the driver's series; then the series alone; then
    the polled average. Raises ``ValueError`` when the window is empty.
    """
    if end_ns <= start_ns:
        raise ValueError(f"window ends at {end_ns} ns, not after its start at {start_ns} ns")
    shared: list[str] = []
    if step_period_s is not None and _aliases(step_period_s):
        shared.append("alias_risk")
    offsets_ns = np.asarray(trace.offsets.realtime_offset_ns, dtype=np.int64)
    if len(offsets_ns) and np.ptp(offsets_ns) > CLOCK_STEP_NS:
        shared.append("clock_step")
    gpus = tuple(_gpu_energy(gpu, _series_times_ns(gpu, trace), start_ns, end_ns, shared) for gpu in trace.gpus)
    return Energy(start_ns=start_ns, end_ns=end_ns, gpus=gpus)


def _aliases(period_s: float) -> bool:
    beats = (SAMPLE_PERIOD_S / n for n in ALIAS_HARMONICS)
    return any(abs(period_s - beat) <= ALIAS_WIDTH_FRACTION * beat for beat in beats)


def _series_times_ns(gpu: GpuTrace, trace: PowerTrace) -> npt.NDArray[np.int64]:
    """The series' stamps on CLOCK_MONOTONIC, by the newest offset measured before each; the first for older ones."""
    realtime_ns = np.asarray(gpu.series.realtime_ns, dtype=np.int64)
    if not len(trace.offsets.t_ns):
        return realtime_ns
    offsets_ns = np.asarray(trace.offsets.realtime_offset_ns, dtype=np.int64)
    measured_ns = np.asarray(trace.offsets.t_ns, dtype=np.int64) + offsets_ns
    newest = np.searchsorted(measured_ns, realtime_ns, side="right") - 1
    return realtime_ns - offsets_ns[np.maximum(newest, 0)]


def _gpu_energy(
    gpu: GpuTrace, series_ns: npt.NDArray[np.int64], start_ns: int, end_ns: int, shared: list[str]
) -> GpuEnergy:
    length_s = (end_ns - start_ns) / 1e9
    series = _power_curve(series_ns, gpu.series.power_mw, start_ns, "series", _SERIES_DOUBT)
    polled = _power_curve(gpu.polled.t_ns, gpu.polled.average_mw, start_ns, "polled", _POLLED_DOUBT)
    counter, reset = _counter_curve(gpu.counter, start_ns, length_s, series)
    curve = next((c for c in (counter, series, polled) if c is not None and c.covers(0.0, length_s)), None)
    flags = [*shared, *_state_flags(gpu, start_ns, end_ns), *(["counter_reset"] if reset else [])]
    if curve is None:
        return GpuEnergy(
            uuid=gpu.uuid,
            index=gpu.index,
            energy_j=None,
            energy_low_j=None,
            energy_high_j=None,
            mean_power_w=None,
            max_power_w=None,
            method="none",
            flags=(*flags, "insufficient"),
        )
    energy_j = curve.between(0.0, length_s)
    doubt_j = curve.doubt_j(length_s)
    if curve.has_gap(length_s):
        flags.append("gap")
    if curve is counter and _disagrees(series, energy_j, length_s):
        flags.append("counter_vs_power")
    if "alias_risk" in flags:
        doubt_j += ALIAS_FRACTION * energy_j
    return GpuEnergy(
        uuid=gpu.uuid,
        index=gpu.index,
        energy_j=energy_j,
        energy_low_j=max(0.0, energy_j - doubt_j),
        energy_high_j=energy_j + doubt_j,
        mean_power_w=energy_j / length_s,
        max_power_w=_max_power_w(gpu, series_ns, start_ns, end_ns),
        method=curve.method,
        flags=tuple(flags),
    )


def _state_flags(gpu: GpuTrace, start_ns: int, end_ns: int) -> list[str]:
    flags: list[str] = [] if gpu.state == "ok" else [gpu.state]
    times = np.asarray(gpu.slow.t_ns, dtype=np.int64)
    reasons = np.asarray(gpu.slow.clock_event_reasons, dtype=np.int64)
    reasons = reasons[(times >= start_ns) & (times <= end_ns) & (reasons != MISSING)]
    if np.any(reasons & THROTTLE_REASONS):
        flags.append("throttled")
    return flags


def _disagrees(series: _Curve | None, energy_j: float, length_s: float) -> bool:
    if series is None or not series.covers(0.0, length_s):
        return False
    return abs(series.between(0.0, length_s) - energy_j) > DISAGREEMENT_FRACTION * energy_j


def _seconds(times_ns: Sequence[int] | npt.NDArray[np.int64], start_ns: int) -> Column:
    # Integers are subtracted before they become floats: nanoseconds since boot need more digits than a float has.
    return (np.asarray(times_ns, dtype=np.int64) - start_ns) / 1e9


def _power_curve(
    times_ns: Sequence[int] | npt.NDArray[np.int64], power_mw: Sequence[int], start_ns: int, method: str, doubt: _Doubt
) -> _Curve | None:
    """Trapezoid integral of a power series; repeated stamps and missing values change nothing."""
    power = np.asarray(power_mw, dtype=np.int64)
    time_s, first = np.unique(_seconds(times_ns, start_ns)[power != MISSING], return_index=True)
    if len(time_s) < MIN_POINTS:
        return None
    power_w = power[power != MISSING][first] / 1e3
    pieces = np.diff(time_s) * (power_w[1:] + power_w[:-1]) / 2
    return _Curve(time_s, np.concatenate(([0.0], np.cumsum(pieces))), doubt, method)


def _counter_curve(
    counter: CounterColumns, start_ns: int, length_s: float, series: _Curve | None
) -> tuple[_Curve | None, bool]:
    """Counter over its publications, and whether it was reset inside the window."""
    # int64 holds 292 years of a kilowatt in mJ, and differences stay signed.
    energy_mj = np.asarray(counter.energy_mj, dtype=np.uint64).astype(np.int64)
    before_s, after_s = _seconds(counter.before_ns, start_ns), _seconds(counter.after_ns, start_ns)
    change = np.flatnonzero(np.diff(energy_mj)) + 1
    inside = (after_s[change] >= 0) & (before_s[change - 1] <= length_s)
    if np.any(np.diff(energy_mj)[change - 1][inside] < 0):
        return None, True
    # A reset outside the window leaves the run of publications around the window usable.
    falls = change[np.diff(energy_mj)[change - 1] < 0]
    first = max((int(i) for i in falls if after_s[i] < 0), default=0)
    last = min((int(i) for i in falls if after_s[i] >= 0), default=len(energy_mj))
    change = change[(change > first) & (change < last)]
    if len(change) < MIN_POINTS:
        return None, False
    # A new value was published after the last reading of the old one began, before its own first reading ended.
    time_s, doubt = _publications(before_s[change - 1], after_s[change])
    energy_j = (energy_mj[change] - energy_mj[change[0]]) / 1e3
    if series is None or not series.covers(float(time_s[0]), float(time_s[-1])):
        # Between two publications the power is unknown, and with it up to a whole publication at each end.
        return _Curve(time_s, energy_j, replace(doubt, edge_s=doubt.edge_s + COUNTER_PERIOD_S), "counter"), False
    shaped_s, shaped_j = _shape(time_s, energy_j, series)
    doubt = replace(doubt, resolution_s=SAMPLE_PERIOD_S, reach_s=COUNTER_PERIOD_S)
    return _Curve(shaped_s, shaped_j, doubt, "counter+series"), False


def _publications(earliest_s: Column, latest_s: Column) -> tuple[Column, _Doubt]:
    """When each counter value was published.

    The counter publishes on a fixed grid, so every interval that is tighter than half a period narrows the grid's
    phase; where no grid fits, each time is the middle of its own interval.
    """
    middle_s, width_s = (earliest_s + latest_s) / 2, latest_s - earliest_s
    alone = middle_s, _Doubt(edge_s=float(np.max(width_s)) / 2)
    tightest = int(np.argmin(width_s))
    steps = np.round((middle_s - middle_s[tightest]) / COUNTER_PERIOD_S)
    tight = width_s < COUNTER_PERIOD_S / 2
    low_s = np.max((earliest_s - steps * COUNTER_PERIOD_S)[tight], initial=earliest_s[tightest])
    high_s = np.min((latest_s - steps * COUNTER_PERIOD_S)[tight], initial=latest_s[tightest])
    if low_s > high_s:
        return alone
    phase_s, half_s = float(low_s + high_s) / 2, float(high_s - low_s) / 2
    # The newest grid point a reading can have seen; float dust must not push it back a period.
    grid_s = phase_s + np.floor((latest_s - phase_s) / COUNTER_PERIOD_S + 1e-6) * COUNTER_PERIOD_S
    # A grid point before its value's interval: the board's period is another.
    if np.any(grid_s < earliest_s - half_s - 1e-6) or np.any(np.diff(grid_s) <= 0):
        return alone
    return grid_s, _Doubt(shift_s=half_s)


def _shape(time_s: Column, energy_j: Column, series: _Curve) -> tuple[Column, Column]:
    """Counter energy at its publications and, between them, in proportion to the series' own integral."""
    inner = series.time_s[(series.time_s > time_s[0]) & (series.time_s < time_s[-1])]
    fine_s = np.union1d(time_s, inner)
    series_at_knots = np.interp(time_s, series.time_s, series.energy_j)
    series_fine = np.interp(fine_s, series.time_s, series.energy_j)
    # The series' integral rises wherever power is drawn, so it can stand in for time.
    return fine_s, np.interp(series_fine, series_at_knots, energy_j)


def _max_power_w(gpu: GpuTrace, series_ns: npt.NDArray[np.int64], start_ns: int, end_ns: int) -> float | None:
    for times_ns, power_mw in (
        (series_ns, gpu.series.power_mw),
        (gpu.polled.t_ns, gpu.polled.instant_mw),
    ):
        times, power = np.asarray(times_ns, dtype=np.int64), np.asarray(power_mw, dtype=np.int64)
        inside = power[(times >= start_ns) & (times <= end_ns) & (power != MISSING)]
        if len(inside):
            return float(inside.max()) / 1e3
    return None
