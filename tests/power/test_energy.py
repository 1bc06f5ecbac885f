"""Joules and their bounds from synthetic traces with numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pybench.model.record import Energy, GpuEnergy
from pybench.power.estimate import attempt_energy
from pybench.power.in_step import LoadPeriods
from pybench.power.measured_window import without_pauses
from pybench.power.sensor import shipped_model
from pybench.power.trace import (
    CounterColumns,
    DeviceState,
    GpuTrace,
    OffsetColumns,
    PolledColumns,
    PowerTrace,
    SeriesColumns,
    SlowColumns,
    StallColumns,
)

MS = 1_000_000
# Days of nanoseconds since boot: more digits than a float has.
BOOT_NS = 10**15
OFFSET_MJ = 7_000_000_000
EMPTY_COUNTER, EMPTY_SERIES, EMPTY_POLLED, EMPTY_SLOW = (
    CounterColumns(),
    SeriesColumns(),
    PolledColumns(),
    SlowColumns(),
)

NO_OFFSETS = OffsetColumns()

Power = Callable[[float], float]


def constant(power_w: float) -> Power:
    """Energy in J since 0 at a time in ms."""
    return lambda t_ms: power_w * t_ms / 1e3


def step(at_ms: float, low_w: float, high_w: float) -> Power:
    return lambda t_ms: (low_w * min(t_ms, at_ms) + high_w * max(t_ms - at_ms, 0.0)) / 1e3


def seen(at_ms: float, low_w: float, high_w: float) -> Callable[[int], float]:
    """A step as the driver's series sees it: behind a low-pass of 10.9 ms."""
    return lambda t_ms: high_w - (high_w - low_w) * (math.exp(-(t_ms - at_ms) / 10.9) if t_ms > at_ms else 1.0)


def counter(energy_j: Power, reads_ms: Sequence[int], phase_ms: int = 50) -> CounterColumns:
    """Read at these times, instantly; published every 100 ms."""
    published = [(t - phase_ms) // 100 * 100 + phase_ms for t in reads_ms]
    times = [BOOT_NS + t * MS for t in reads_ms]
    values = [OFFSET_MJ + round(energy_j(t) * 1e3) for t in published]
    return CounterColumns(before_ns=times, after_ns=times, energy_mj=values)


def series(power_w: Callable[[int], float], first_ms: int = -500, last_ms: int = 2000) -> SeriesColumns:
    times = range(first_ms, last_ms + 1, 20)
    return SeriesColumns(
        realtime_ns=[BOOT_NS + t * MS for t in times], power_mw=[round(power_w(t) * 1e3) for t in times]
    )


def polled(times_ms: Sequence[int], average_w: float, **columns: Sequence[int]) -> PolledColumns:
    filled = {"instant_mw": [-1] * len(times_ms), **columns}
    return PolledColumns(
        t_ns=[BOOT_NS + t * MS for t in times_ms], average_mw=[round(average_w * 1e3)] * len(times_ms), **filled
    )


# Every 10 ms: each publication, 50 ms past a hundred, lies in the middle of the 10 ms between two readings.
READS_MS = range(-205, 1406, 10)


def gpu(
    counter: CounterColumns = EMPTY_COUNTER,
    series: SeriesColumns = EMPTY_SERIES,
    polled: PolledColumns = EMPTY_POLLED,
    state: DeviceState = "ok",
    slow: SlowColumns = EMPTY_SLOW,
) -> GpuTrace:
    return GpuTrace(
        uuid="GPU-0",
        index=0,
        name="GPU",
        sensor=shipped_model("NVIDIA H200", "580.00"),
        state=state,
        counter=counter,
        series=series,
        polled=polled,
        slow=slow,
    )


def slow(at_ms: int, reasons: int) -> SlowColumns:
    return SlowColumns(t_ns=[BOOT_NS + at_ms * MS], clock_event_reasons=[reasons])


def trace(*gpus: GpuTrace, offsets: OffsetColumns = NO_OFFSETS) -> PowerTrace:
    return PowerTrace(start_ns=BOOT_NS, end_ns=BOOT_NS + 2000 * MS, gpus=gpus, offsets=offsets)


def energy(one: GpuTrace, start_ms: int = 0, end_ms: int = 1000, period_s: float | None = None) -> GpuEnergy:
    rhythm = None if period_s is None else LoadPeriods((period_s,))
    (found,) = attempt_energy(trace(one), BOOT_NS + start_ms * MS, BOOT_NS + end_ms * MS, rhythm).gpus
    return found


def off_j(found: GpuEnergy, truth_j: float) -> float:
    assert found.energy_j is not None
    return abs(found.energy_j - truth_j)


def half_width_j(found: GpuEnergy) -> float:
    assert found.energy_j is not None
    assert found.energy_low_j is not None
    assert found.energy_high_j is not None
    assert found.energy_high_j - found.energy_j == pytest.approx(found.energy_j - found.energy_low_j)
    return found.energy_high_j - found.energy_j


def test_counter_and_series_at_constant_load() -> None:
    found = energy(gpu(counter(constant(400), READS_MS), series(lambda _: 400)))
    assert found.method == "counter+series"
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)
    assert found.mean_power_w == pytest.approx(400.0, rel=1e-3)
    assert found.max_power_w == found.mean_power_w
    assert found.flags == ()
    # The floor, 0.1 %, and the moments of publication: grid, lag and shape of a steady load do not matter.
    assert 0.4 <= half_width_j(found) <= 2.0
    assert found.num_publications == 10


def test_a_value_that_comes_a_publication_early() -> None:
    """40 J too many for 100 ms: far from the window they change nothing, at its end the bound holds them."""
    reads_ms = [*range(-1205, -544, 10), *range(-345, 1406, 10)]
    early = counter(lambda t_ms: 0.4 * (t_ms + 100 * (t_ms == -550)), reads_ms)
    one = gpu(early, series(lambda _: 400, first_ms=-1500))
    far, near = energy(one), energy(one, -500, 500)
    assert off_j(far, 400.0) <= 0.4
    assert half_width_j(far) <= 3.0
    assert off_j(near, 400.0) <= half_width_j(near)


@pytest.mark.parametrize("counter_w", [640.0, 440.0, 240.0])
@pytest.mark.parametrize("length_ms", [1000, 70_000])
def test_a_counter_that_contradicts_the_power(counter_w: float, length_ms: int) -> None:
    """The power is 400 W. The bound holds both, and the mean power stays below the peak, also in long windows."""
    reads_ms = [*range(-1205, 1406, 10), *range(length_ms - 1205, length_ms + 1406, 10)]
    readings = counter(constant(counter_w), sorted(set(reads_ms)))
    joules = energy(gpu(readings, series(lambda _: 400, last_ms=length_ms + 1500)), 0, length_ms)
    assert joules.flags == ("counter_vs_power",)
    assert joules.energy_low_j is not None
    assert joules.energy_high_j is not None
    assert joules.energy_low_j <= min(counter_w, 400.0) * length_ms / 1e3
    assert joules.energy_high_j >= max(counter_w, 400.0) * length_ms / 1e3
    assert joules.mean_power_w == pytest.approx(min(counter_w, 400.0), rel=0.01)
    assert joules.max_power_w == pytest.approx(400.0, rel=1e-3)


def test_a_mean_is_never_above_the_peak() -> None:
    """Also where the counter is 2 % above the series, which a sensor's gain may be: samples may miss the peak."""
    joules = energy(gpu(counter(constant(408), READS_MS), series(lambda _: 400)))
    assert joules.flags == ()
    assert joules.mean_power_w == joules.max_power_w == pytest.approx(408.0, rel=1e-3)


@pytest.mark.parametrize("end_ms", [960, 990, 1000, 1010, 1040])
def test_series_shapes_between_publications(end_ms: int) -> None:
    # A step in the middle of a publication, which the counter alone would spread over it.
    load = step(1000, 100, 600)
    one = gpu(counter(load, READS_MS), series(seen(1000, 100, 600)))
    found = energy(one, 0, end_ms)
    assert found.energy_j is not None
    assert abs(found.energy_j - load(end_ms)) <= half_width_j(found)
    # The step is found to a millisecond, though samples are 20 ms apart and publications 100 ms.
    assert found.energy_j == pytest.approx(load(end_ms), abs=500 * 0.001)


def test_a_step_far_from_both_ends_is_the_counters_to_know() -> None:
    one = gpu(counter(step(500, 100, 600), READS_MS), series(seen(500, 100, 600)))
    found = energy(one)
    assert found.energy_j == pytest.approx(350.0, abs=500 * 0.001)
    assert half_width_j(found) >= off_j(found, 350.0)


def test_counter_alone() -> None:
    found = energy(gpu(counter(constant(400), READS_MS)))
    assert found.method == "counter"
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)
    assert found.max_power_w is None
    # When the energy inside a publication of 40 J was spent is unknown, at each end.
    assert 20 <= half_width_j(found) <= 60


def test_last_publication_may_be_newer_than_the_last_sample() -> None:
    found = energy(gpu(counter(constant(400), READS_MS), series(lambda _: 400, last_ms=1340)), 0, 1300)
    assert found.method == "counter+series"
    assert found.energy_j == pytest.approx(520.0, rel=1e-4)


def test_series_that_ends_early_does_not_shape() -> None:
    assert energy(gpu(counter(constant(400), READS_MS), series(lambda _: 400, 0, 500))).method == "counter"


def test_grid_phase_comes_from_the_tightest_readings() -> None:
    # Readings every 97 ms, but every 10 ms around one publication at 50 ms.
    reads = [*range(-341, 47, 97), 46, 50, *range(143, 1501, 97)]
    found = energy(gpu(counter(step(500, 100, 600), reads), series(seen(500, 100, 600))))
    assert found.method == "counter+series"
    assert found.energy_j == pytest.approx(350.0, abs=500 * 0.001)


def test_without_a_grid_each_publication_stands_for_itself() -> None:
    # Published every 130 ms: no 100 ms grid fits.
    times = [BOOT_NS + t * MS for t in range(-300, 1501, 10)]
    values = [OFFSET_MJ + 400 * (t // 130 * 130) for t in range(-300, 1501, 10)]
    one = gpu(CounterColumns(before_ns=times, after_ns=times, energy_mj=values), series(lambda _: 400))
    found = energy(one)
    assert found.energy_j == pytest.approx(400.0, abs=4.0)
    assert half_width_j(found) >= off_j(found, 400.0)


def test_a_slow_drift_from_the_grid_is_noticed() -> None:
    # Readings far apart, so that only one pins the phase, and a board whose period is 85 ms.
    reads = [-300, -200, -100, 0, 4, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200]
    times = [BOOT_NS + t * MS for t in reads]
    values = [OFFSET_MJ + 400 * ((t - 2) // 85 * 85) for t in reads]
    found = energy(gpu(CounterColumns(before_ns=times, after_ns=times, energy_mj=values), series(lambda _: 400)))
    assert found.energy_j is not None
    assert abs(found.energy_j - 400.0) <= half_width_j(found)


def test_series_alone() -> None:
    found = energy(gpu(series=series(lambda _: 250)))
    assert found.method == "series"
    assert found.energy_j == pytest.approx(250.0)
    # Its gain against the counter is known to 0.3 %.
    assert half_width_j(found) == pytest.approx(3.0 * 0.003 * 250 + 0.0005 * 250, rel=0.1)


def test_series_alone_counts_every_change() -> None:
    found = energy(gpu(series=series(seen(500, 100, 600))))
    assert found.energy_j == pytest.approx(350.0, abs=500 * 0.001)
    assert half_width_j(found) >= off_j(found, 350.0)


def test_series_with_repeated_stamps_and_missing_values() -> None:
    times = [BOOT_NS + t * MS for t in (0, 0, 320, 500, 600, 700, 1000)]
    power_mw = [200_000, 900_000, 200_000, 200_000, 200_000, -1, 200_000]
    found = energy(gpu(series=SeriesColumns(realtime_ns=times, power_mw=power_mw)))
    assert found.energy_j == pytest.approx(200.0)
    assert "gap" in found.flags


def test_polled_average_is_the_last_resort() -> None:
    times = range(-1500, 2501, 50)
    found = energy(gpu(polled=polled(times, 300, instant_mw=[310_000, -1] * (len(times) // 2) + [-1])))
    assert found.method == "polled"
    assert found.energy_j == pytest.approx(300.0)
    assert found.max_power_w == 310.0
    assert half_width_j(found) == pytest.approx(3.0 * 0.003 * 300 + 0.0005 * 300, rel=0.01)


def test_polled_readings_of_zero_watts_are_left_out() -> None:
    """Three of them, together and alone, would take 30 J."""
    readings = polled(range(-500, 1501, 50), 300)
    zero_ms = (200, 250, 700)
    average_mw = [
        0 if (t_ns - BOOT_NS) // MS in zero_ms else mw
        for t_ns, mw in zip(readings.t_ns, readings.average_mw, strict=True)
    ]
    found = energy(gpu(polled=replace(readings, average_mw=average_mw)))
    assert (found.method, found.flags) == ("polled", ("glitch",))
    assert found.energy_j == pytest.approx(300.0)


def test_polled_that_ends_early_knows_nothing() -> None:
    found = energy(gpu(polled=polled(range(-500, 501, 50), 300)))
    assert found == GpuEnergy(uuid="GPU-0", index=0, method="none", flags=("insufficient",))


@pytest.mark.parametrize("state", ["lost", "no_permission", "not_supported", "error", "stalled"])
def test_state_of_the_gpu_is_a_flag(state: DeviceState) -> None:
    assert energy(gpu(state=state)).flags == (state, "insufficient")
    whole = gpu(counter(constant(400), READS_MS), series(lambda _: 400), state=state)
    assert energy(whole).flags == (state,)


@pytest.mark.parametrize("reads_ms", [[], [0], [0, 10, 20], [0, 60, 70]])
def test_too_few_publications(reads_ms: list[int]) -> None:
    assert energy(gpu(counter(constant(400), reads_ms))).method == "none"


def reset_at(at_ms: int) -> CounterColumns:
    """Counts 400 W from little again after ``at_ms``."""
    whole = counter(constant(400), READS_MS)
    after = BOOT_NS + at_ms * MS
    values = [
        v if t < after else v - OFFSET_MJ + 1_000_000 for t, v in zip(whole.before_ns, whole.energy_mj, strict=True)
    ]
    return replace(whole, energy_mj=values)


def test_reset_inside_the_window() -> None:
    found = energy(gpu(reset_at(500), series(lambda _: 400)))
    assert found.method == "series"
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)
    assert found.flags == ("counter_reset",)


@pytest.mark.parametrize("at_ms", [-150, 1300])
def test_reset_outside_the_window_changes_nothing(at_ms: int) -> None:
    found = energy(gpu(reset_at(at_ms), series(lambda _: 400)))
    assert found.method == "counter+series"
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)
    assert found.flags == ()


def test_gap() -> None:
    # The series lacks 500 ms; the counter's sum is whole all the same.
    whole = series(lambda _: 400)
    kept = [i for i, t_ns in enumerate(whole.realtime_ns) if not 300 < (t_ns - BOOT_NS) // MS < 800]
    holed = SeriesColumns(realtime_ns=[whole.realtime_ns[i] for i in kept], power_mw=[whole.power_mw[i] for i in kept])
    found = energy(gpu(counter(constant(400), READS_MS), holed))
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)
    assert found.flags == ("gap",)
    assert energy(gpu(counter(constant(400), READS_MS), holed), 810, 1000).flags == ()


def _stalled() -> GpuTrace:
    """650 W, then 130 W from 2.3 s on; from 0.13 s to 2.84 s no sample, and to 5.25 s no reading of the counter."""
    load = step(2300, 650, 130)
    reads = [t for t in range(-2005, 7406, 10) if not 80 < t < 5250]
    whole = series(seen(2300, 650, 130), -3000, 7400)
    kept = [i for i, t_ns in enumerate(whole.realtime_ns) if not 130 < (t_ns - BOOT_NS) // MS < 2840]
    holed = SeriesColumns(realtime_ns=[whole.realtime_ns[i] for i in kept], power_mw=[whole.power_mw[i] for i in kept])
    return gpu(counter(load, reads), holed)


def test_the_counter_rules_over_a_gap() -> None:
    """The sample after a gap shows nothing of it: as on an H200 whose driver hung for three seconds."""
    found = energy(_stalled(), 0, 5200)
    assert found.energy_j == pytest.approx(650 * 2.3 + 130 * 2.9, abs=half_width_j(found))
    assert half_width_j(found) < 0.03 * 1872
    assert "gap" in found.flags


def test_a_window_that_ends_in_a_gap_is_known_badly() -> None:
    """How much of the gap's energy was spent by then, nothing shows."""
    found = energy(_stalled(), 0, 2000)
    assert found.energy_j == pytest.approx(1300, abs=half_width_j(found))
    assert half_width_j(found) > 0.2 * 1300
    assert found.flags == ("gap",)


def test_a_window_within_a_gap_is_unknown() -> None:
    """Rather than joules whose bound reaches zero."""
    found = energy(_stalled(), 600, 800)
    assert found.energy_j is None
    assert found.flags == ("gap", "insufficient")


def test_no_gap_where_the_counter_is_read_at_the_ends_only() -> None:
    reads = [t for t in READS_MS if not 100 < t < 900]
    found = energy(gpu(counter(constant(400), reads), series(lambda _: 400)))
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)
    assert found.flags == ()


def test_gap_outside_the_window() -> None:
    reads = [*range(-2000, -1900, 10), *READS_MS]
    assert energy(gpu(counter(constant(400), reads))).flags == ()


def test_no_disagreement_without_a_series_over_the_window() -> None:
    assert energy(gpu(counter(constant(400), READS_MS), series(lambda _: 100, 0, 500))).flags == ()


@pytest.mark.parametrize(
    ("at_ms", "reason"), [*((500, reason) for reason in (0x08, 0x20, 0x40, 0x80)), (-1490, 0x08), (2490, 0x08)]
)
def test_throttled(at_ms: int, reason: int) -> None:
    """In the window of a second, or within 1.5 s of its ends."""
    whole = gpu(counter(constant(400), READS_MS), slow=slow(at_ms, reason))
    assert energy(whole).flags == ("throttled",)


@pytest.mark.parametrize(("at_ms", "reason"), [(500, 0x04), (500, 0), (500, -1), (-1510, 0x08), (2510, 0x08)])
def test_not_throttled(at_ms: int, reason: int) -> None:
    """The power cap is no fault; unknown reasons and reasons long before or after the window are ignored."""
    whole = gpu(counter(constant(400), READS_MS), slow=slow(at_ms, reason))
    assert energy(whole).flags == ()


def test_a_long_window_is_joined_at_its_ends_only() -> None:
    reads = range(-205, 100_406, 97)
    one = gpu(
        counter(step(50_000, 100, 600), sorted({*range(-205, -100, 10), *reads})),
        series(seen(50_000, 100, 600), -500, 100_500),
    )
    found = energy(one, 0, 100_000)
    assert found.method == "counter+series"
    assert found.energy_j == pytest.approx(35_000, rel=5e-4)
    # Far from both ends the step says nothing of the lag, which the two powers make into some joules.
    assert off_j(found, 35_000) < half_width_j(found) < 0.006 * 35_000


def test_counter_reads_of_zero_watts_are_left_out_of_the_series() -> None:
    found = energy(gpu(counter(constant(400), READS_MS), series(lambda t: 0 if t == 500 else 400)))
    assert found.flags == ("glitch",)
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)


def test_stall_inside_the_window() -> None:
    stalls = StallColumns(start_ns=[BOOT_NS + 900 * MS], end_ns=[BOOT_NS + 2100 * MS])
    whole = replace(gpu(counter(constant(400), READS_MS), series(lambda _: 400)), stalls=stalls)
    assert energy(whole).flags == ("stalled",)
    assert energy(whole, 0, 800).flags == ()


def test_what_the_board_is_becomes_flags() -> None:
    whole = gpu(counter(constant(400), READS_MS), series(lambda _: 400))
    warm = SlowColumns(t_ns=[BOOT_NS, BOOT_NS + 900 * MS], temperature_c=[40, 51])
    odd = replace(whole, mig=True, shared_board=True, scope="module", dropped_records=3, slow=warm)
    assert energy(odd).flags == ("temperature_drift", "dropped_records", "mig", "shared_board", "module_scope")
    assert attempt_energy(trace(odd), BOOT_NS, BOOT_NS + 500 * MS, None).scope == "module"


@pytest.mark.parametrize(
    ("slewed_ns", "set_by_ns", "flags"),
    [(5_000_000, [7, 7], ()), (0, [0, 1_000_001], ("clock_step",)), (0, [0, -2_000_000], ("clock_step",))],
)
def test_clock_step(slewed_ns: int, set_by_ns: list[int], flags: tuple[str, ...]) -> None:
    one = gpu(counter(constant(400), READS_MS))
    ends_ns = [BOOT_NS, BOOT_NS + 2000 * MS]
    offsets = OffsetColumns(t_ns=ends_ns, realtime_offset_ns=[0, slewed_ns], set_by_ns=set_by_ns)
    found = attempt_energy(trace(one, offsets=offsets), BOOT_NS, BOOT_NS + 1000 * MS, None)
    assert found.gpus[0].flags == flags


def test_series_is_moved_by_the_newest_offset_before_it() -> None:
    times = [BOOT_NS + t * MS for t in range(-500, 2001, 20)]
    # The wall clock is a second ahead, and from 500 ms on two seconds.
    late = [t + (1000 if t < BOOT_NS + 500 * MS else 2000) * MS for t in times]
    offsets = OffsetColumns(t_ns=[BOOT_NS - 600 * MS, BOOT_NS + 500 * MS], realtime_offset_ns=[1000 * MS, 2000 * MS])
    one = gpu(series=SeriesColumns(realtime_ns=late, power_mw=[250_000] * len(late)))
    (found,) = attempt_energy(trace(one, offsets=offsets), BOOT_NS, BOOT_NS + 1000 * MS, None).gpus
    assert found.energy_j == pytest.approx(250.0)


def test_low_end_is_never_negative() -> None:
    found = energy(gpu(counter(constant(400), READS_MS)), 0, 50)
    assert found.energy_j == pytest.approx(20.0, rel=1e-3)
    assert found.energy_low_j == 0.0


@pytest.mark.parametrize("end_ns", [BOOT_NS, BOOT_NS - 5])
def test_empty_window(end_ns: int) -> None:
    with pytest.raises(ValueError, match=rf"^window ends at {end_ns} ns, not after its start at {BOOT_NS} ns$"):
        attempt_energy(trace(), BOOT_NS, end_ns, None)


def test_sum_over_gpus() -> None:
    whole = gpu(counter(constant(400), READS_MS))
    both = attempt_energy(trace(whole, replace(whole, uuid="GPU-1", index=1)), BOOT_NS, BOOT_NS + 1000 * MS, None)
    assert [one.uuid for one in both.gpus] == ["GPU-0", "GPU-1"]
    assert both.energy_j == pytest.approx(800.0, rel=1e-3)
    half = attempt_energy(trace(whole, gpu(state="lost")), BOOT_NS, BOOT_NS + 1000 * MS, None)
    assert half.energy_j is None
    assert half.scope == "gpu_board"


def test_joules_of_pauses_are_taken_out() -> None:
    # Idle at 100 W before the window, 400 W within; a tenth of the window was pauses.
    one = gpu(counter(step(-100, 100, 400), READS_MS), series(seen(-100, 100, 400)))
    whole = attempt_energy(trace(one), BOOT_NS, BOOT_NS + 1000 * MS, None)
    (before,), (after,) = whole.gpus, without_pauses(whole, trace(one), 0.1).gpus
    assert after.flags == (*before.flags, "dithered")
    # 10 J when idle, at most 40 J, of 400 J.
    off_by_j = [
        was - now
        for was, now in zip(
            (before.energy_j, before.energy_low_j, before.energy_high_j),
            (after.energy_j, after.energy_low_j, after.energy_high_j),
            strict=True,
        )
        if was is not None and now is not None
    ]
    assert off_by_j == pytest.approx([10, 40, 10], abs=0.2)
    assert after.mean_power_w == pytest.approx(390.0 / 0.9, abs=1.2)


@pytest.mark.parametrize("pause_w", [75, 140, 300, 390])
@pytest.mark.parametrize("busy_s", [0.010, 0.020])
def test_steps_without_their_pauses_hold_the_truth(pause_w: float, busy_s: float) -> None:
    """600 steps of 20 ms, 690 W while busy and 140 W else, with 1.25 ms of pause each; 75 W before they began."""
    steps_j = 600 * (690 * busy_s + 140 * (0.020 - busy_s))
    whole_j, pauses_s = steps_j + 600 * 0.00125 * pause_w, 600 * 0.00125
    exact = GpuEnergy(
        uuid="GPU-0", index=0, energy_j=whole_j, energy_low_j=whole_j, energy_high_j=whole_j, method="counter"
    )
    window_ns = round((600 * 0.020 + pauses_s) * 1e9)
    whole = Energy(start_ns=BOOT_NS, end_ns=BOOT_NS + window_ns, gpus=(exact,), scope="gpu_board")
    idle = trace(gpu(series=series(lambda t: 75 if t < 0 else 415)))
    (found,) = without_pauses(whole, idle, pauses_s).gpus
    assert found.energy_j is not None
    assert found.energy_low_j is not None
    assert found.energy_high_j is not None
    assert found.energy_low_j <= steps_j <= found.energy_high_j + 1e-6
    # At clocks that have not come down a GPU drew 140 W: the step then reads 1 % high.
    if pause_w <= 140:
        assert found.energy_j == pytest.approx(steps_j, rel=0.011)


def test_unknown_joules_stay_unknown_without_pauses() -> None:
    nothing = trace(gpu())
    whole = attempt_energy(nothing, BOOT_NS, BOOT_NS + 1000 * MS, None)
    assert without_pauses(whole, nothing, 0.1).gpus[0].flags == ("insufficient", "dithered")


def test_counter_that_starts_inside_the_window_leaves_it_to_the_series() -> None:
    reads = [t for t in READS_MS if t > 600]
    found = energy(gpu(counter(constant(400), reads), series(lambda _: 400)))
    assert found.method == "series"
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)


def test_counter_that_ends_before_the_window_tells_nothing_alone() -> None:
    reads = [t for t in READS_MS if t < 900]
    assert energy(gpu(counter(constant(400), reads))).method == "none"


def test_readings_too_far_apart_for_any_grid() -> None:
    # Two readings a second: ten publications between them, and no telling where.
    reads = range(-2205, 3206, 500)
    found = energy(gpu(counter(constant(400), reads), series(lambda _: 400, -2500, 3500)))
    assert found.energy_j is not None
    assert half_width_j(found) >= off_j(found, 400.0)


def test_a_value_read_long_after_the_last_is_of_its_own_time() -> None:
    """Nothing was read for half a minute around the window: no period, which fits no grid, is as long as that."""
    times_ms = [*range(-14_170, -14_100, 11), -14_060, 16_990, 17_001, 17_012, 17_090]
    found = energy(gpu(counter(constant(400), times_ms)), 0, 2_000)
    assert found.method == "counter"
    assert found.energy_j == pytest.approx(800, rel=0.05)


@pytest.mark.parametrize("shown_w", [0, 0.4])
@pytest.mark.parametrize("zero_of_20", [20, 19, 12])
def test_a_series_of_zero_watts_shows_no_power(shown_w: float, zero_of_20: int) -> None:
    """Of all, nearly all or most samples: the counter's sum stays, else the polled average, else nothing is known."""
    zeros = series(lambda t: shown_w if t // 20 % 20 < zero_of_20 else 400)
    known = energy(gpu(counter(constant(400), READS_MS), zeros, polled(range(-1500, 2501, 50), 400)))
    assert known.method in {"counter", "counter+series"}
    assert known.energy_j == pytest.approx(400.0, rel=0.02)
    averages = energy(gpu(series=zeros, polled=polled(range(-1500, 2501, 50), 400)))
    assert averages.energy_j == pytest.approx(400.0, rel=0.02)
    alone = energy(gpu(series=zeros))
    if zero_of_20 == 20:
        assert (alone.energy_j, alone.max_power_w, "insufficient" in alone.flags) == (None, None, True)
    assert known.max_power_w is None or known.max_power_w == pytest.approx(max(400.0, known.mean_power_w or 0.0))


@pytest.mark.parametrize("wrong_mj", [0, 2**40, OFFSET_MJ // 2], ids=["zero", "spike", "fallen"])
@pytest.mark.parametrize("which", [30, 60, 100])
def test_a_wrong_counter_reading_is_flagged_or_held(wrong_mj: int, which: int) -> None:
    """One reading among many, within the window, near its end, or after it."""
    right = counter(constant(400), READS_MS)
    values = list(right.energy_mj)
    values[which % len(values)] = wrong_mj
    found = energy(gpu(replace(right, energy_mj=values), series(lambda _: 400)))
    assert found.flags or off_j(found, 400) <= half_width_j(found)


@pytest.mark.parametrize("spike_w", [2_000_000, 5_000])
def test_an_impossible_sample_moves_no_joule(spike_w: int) -> None:
    found = energy(gpu(counter(constant(400), READS_MS), series(lambda t: spike_w if t == 500 else 400)))
    assert found.flags == ("glitch",)
    assert found.energy_j == pytest.approx(400.0, rel=1e-3)
    assert found.max_power_w == pytest.approx(400.0, rel=1e-4)


def test_a_load_that_is_short_beside_its_window_is_no_glitch() -> None:
    """0.4 s at 700 W in 10 s at 70 W: fewer than one sample in twenty."""
    one = gpu(series=series(lambda t: 700 if 5000 <= t < 5400 else 70, last_ms=10_500))
    found = energy(one, 0, 10_000)
    assert (found.method, found.max_power_w) == ("series", 700.0)
    assert found.energy_j == pytest.approx(10 * 70 + 0.4 * 630, rel=0.01)
    assert found.flags == ()


@pytest.mark.parametrize(
    ("usual_w", "peak_w", "beside_w", "is_glitch"),
    [
        pytest.param(240, 784, (191, 432), False, id="of an H100, a stage of four"),
        pytest.param(240, 854, (724, 305), False, id="the last of a load"),
        pytest.param(120, 650, (120, 120), False, id="whose tail the load may hide"),
        pytest.param(120, 900, (120, 120), True, id="without a tail"),
        pytest.param(400, 3_100, (600, 600), True, id="beyond any board"),
    ],
)
def test_a_lone_peak_is_no_glitch_where_a_low_pass_left_its_tail(
    usual_w: int, peak_w: int, beside_w: tuple[int, int], *, is_glitch: bool
) -> None:
    """A prefill of 20 ms: one reading of more than three times the usual."""
    peak = {480: beside_w[0], 500: peak_w, 520: beside_w[1]}
    found = energy(gpu(series=series(lambda t: peak.get(t, usual_w), last_ms=2_500)), 0, 2_000)
    assert found.flags == (("glitch",) if is_glitch else ())
    assert found.max_power_w == (max(beside_w) if is_glitch else peak_w)


def test_readings_that_no_board_draws_are_glitches_together_too() -> None:
    found = energy(gpu(counter(constant(400), READS_MS), series(lambda t: 2_000_000 if t in (480, 500) else 400)))
    assert found.flags == ("glitch",)
    assert found.max_power_w == pytest.approx(400.0, rel=1e-4)
