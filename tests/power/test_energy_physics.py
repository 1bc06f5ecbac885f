"""Joules against the truth on simulated boards: few windows here, more in tests/native, most in the benchmarks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.power.counter import Readings, candidate_grids
from pybench.power.curve import undo_low_pass
from pybench.power.estimate import attempt_energy, gpu_energies
from pybench.power.samples import samples_of
from pybench.power.trace import CounterColumns
from tests.physics.board import BOARDS, H200, Board, ns, truth_j
from tests.physics.load import Load, bursty, constant, square
from tests.physics.windows import measure, phases


@pytest.mark.parametrize(
    ("load", "window_s", "most_percent"),
    [
        ("constant", 1.0, 0.1),
        ("decode_30hz", 1.0, 0.6),
        ("square_200_200", 1.0, 0.5),
        # The counter adds up samples that keep step with this load, and so counts for less than the series.
        ("square_50_50", 1.0, 3.0),
        ("bursty", 1.0, 1.0),
        ("constant", 0.3, 0.3),
        ("square_200_200", 0.3, 1.6),
    ],
)
def test_errors_and_bounds(num_windows: int, load: str, window_s: float, most_percent: float) -> None:
    outcome = measure(load, window_s, num_windows)
    assert outcome.p95_percent <= most_percent
    assert outcome.told_percent >= 97
    if load != "square_50_50":
        assert outcome.inside_percent >= 97


@pytest.mark.parametrize(
    "board",
    [
        pytest.param(Board(counter_period_s=0.1017), id="period no round number"),
        pytest.param(Board(counter_period_s=0.05), id="period shorter than the reads"),
        pytest.param(Board(counter_period_s=0.02), id="period far shorter than the reads"),
        pytest.param(Board(tau_s=0.013), id="slower low-pass"),
        pytest.param(Board(name="Some GPU", tau_s=0.0), id="no low-pass, on an unknown board"),
        pytest.param(Board(missing_fraction=0.05), id="missing samples"),
        pytest.param(Board(astray_s=4e-3), id="publications beside their grid"),
    ],
)
def test_bounds_hold_on_other_boards(num_windows: int, board: Board) -> None:
    assert measure("square_200_200", 1.0, num_windows, board).inside_percent >= 90
    assert measure("constant", 1.0, num_windows, board).inside_percent >= 95


def test_a_recordings_beginning_is_the_same_for_every_window() -> None:
    """So that its periods are searched once: seconds since a window's start differ in their last digits."""
    rng = np.random.default_rng(1)
    before_ns = np.sort(rng.integers(10**15, 10**15 + 19 * 10**9, 30))
    after_ns = (before_ns + 3_141_593).tolist()
    counter = CounterColumns(before_ns=before_ns.tolist(), after_ns=after_ns, energy_mj=range(30))
    origins_ns = (10**15 + 7, 10**15 + 86_400 * 10**9)
    one, other = (Readings.of(counter, origin_ns).beginning(20.0) for origin_ns in origins_ns)
    assert one.before_s.tobytes() == other.before_s.tobytes()
    assert one.after_s.tobytes() == other.after_s.tobytes()
    assert one.before_s[-1] == pytest.approx((before_ns[-1] - before_ns[0]) / 1e9)


@pytest.mark.parametrize("fault", ["wraps", "0 once", "2^40 once", "series of 0", "series of 2^31"])
def test_a_wrong_reading_costs_nothing_or_is_flagged(fault: str) -> None:
    """One reading of the counter, or three samples, near the window."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        load = bursty(rng, -6, 3)
        trace = replace(H200, lag_s=0.01, _sums={}).trace(load, -1, 1.06, rng, marks_s=(0.0, 1.0))
        (gpu,) = trace.gpus
        energy_mj, power_mw = np.array(gpu.counter.energy_mj), np.array(gpu.series.power_mw)
        near = np.flatnonzero(np.array(gpu.counter.before_ns) > int(ns(-0.15)))
        chosen, samples = int(rng.choice(near)), rng.choice(np.arange(100, len(power_mw)), 3)
        if fault == "wraps":
            energy_mj[chosen:] -= energy_mj[chosen] - 12
        elif "series" in fault:
            power_mw[samples] = 0 if fault == "series of 0" else 2**31
        else:
            energy_mj[chosen] = 0 if fault == "0 once" else 2**40
        spoilt = replace(
            gpu,
            counter=replace(gpu.counter, energy_mj=energy_mj.tolist()),
            series=replace(gpu.series, power_mw=power_mw.tolist()),
        )
        found = attempt_energy(replace(trace, gpus=(spoilt,)), int(ns(0.0)), int(ns(1.0)), None).gpus[0]
        true_j = truth_j(load, 0.0, 1.0)
        known = found.energy_low_j is not None and found.energy_high_j is not None
        holds = known and found.energy_low_j <= true_j <= found.energy_high_j  # type: ignore[operator]
        assert holds or (found.flags and "series" not in fault)
        assert ("glitch" in found.flags) == ("series" in fault)


def test_a_sensor_that_follows_no_model_is_flagged_in_windows_far_apart() -> None:
    """Every other 20 samples read 30 % low; the windows' ends are more than a minute apart."""
    rng = np.random.default_rng(0)
    load = bursty(rng, -6, 70)
    trace = replace(H200, lag_s=0.01, _sums={}).trace(load, -1, 66, rng, marks_s=(0.0, 1.0, 64.0, 65.0))
    (gpu,) = trace.gpus
    low_mw = [int(0.7 * mw) if place % 40 < 20 else mw for place, mw in enumerate(gpu.series.power_mw)]
    spoilt = replace(trace, gpus=(replace(gpu, series=replace(gpu.series, power_mw=low_mw)),))
    windows_ns = [(int(ns(0)), int(ns(1))), (int(ns(64)), int(ns(65)))]
    assert gpu_energies(trace, windows_ns, None)[0].flags == ()
    assert gpu_energies(spoilt, windows_ns, None)[0].flags == ("counter_vs_power", "sensor_misfit")


def test_bounds_of_a_long_window_of_a_load_that_repeats_hold() -> None:
    """Steps of 0.653 s: three of them are 98 samples, and what those miss is the same in each three."""
    assert measure("generation", 10.0, 8, BOARDS["H200, copies"]).inside_percent == 100


def test_undoing_the_low_pass_gives_back_the_load() -> None:
    rng = np.random.default_rng(2)
    load = square(120, 680, 0.17, 0.23, -5, 3)
    trace = Board().trace(load, -1, 2, rng)
    samples = samples_of(trace.gpus[0].series, trace.offsets, int(ns(0)))
    curve = undo_low_pass(samples.time_s, samples.power_w, 10.9e-3, 0.5e-3)
    times_s = np.arange(-1, 1.5, 0.013)
    found_j, true_j = curve.at(times_s), load.energy_j(times_s)
    # Within a millisecond of the jump at any time, also after ten jumps.
    assert np.max(np.abs((found_j - found_j[0]) - (true_j - true_j[0]))) < 0.56


@pytest.mark.parametrize("period_ms", [24, 26, 27, 28, 35, 50])
def test_steps_that_are_placed_wrongly_again_and_again_cost_no_joules(period_ms: int) -> None:
    """Rounds that are busy for 35 % of their time: 20 s of them had up to 1.1 % too much, or 0.5 % too little."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        lengths_s = np.ravel(period_ms / 1e3 * (1 + 0.01 * rng.standard_normal((1200, 1))) * [0.35, 0.65])
        load = Load(np.cumsum([-3.0, *lengths_s])[:-1], np.tile([500.0, 360.0], 1200))
        trace = Board().trace(load, -1, 22, rng)
        samples = samples_of(trace.gpus[0].series, trace.offsets, int(ns(0)))
        curve = undo_low_pass(samples.time_s, samples.power_w, 10.9e-3, 0.5e-3)
        found_j = float(np.diff(curve.at([0.5, 20.5]))[0])
        assert found_j == pytest.approx(truth_j(load, 0.5, 20.5), rel=2.5e-3)


def test_bounds_of_decode_rounds_between_prefills_hold() -> None:
    """Equal errors of sums were taken for the error of a sampling counter: ± 0.3 %, with an error of 0.75 %."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        step_s = [0.2, *np.ravel(0.0275 * (1 + 0.01 * rng.standard_normal((120, 1))) * [0.35, 0.65])]
        lengths_s = [*step_s * 5, 1.0]
        power_w = [*[640.0, *[500.0, 360.0] * 120] * 5, 115.0]
        load = Load(np.cumsum([-6.0, 6.0, *lengths_s[:-1]]), np.array([115.0, *power_w]))
        end_s = 5 * sum(step_s)
        board = replace(BOARDS["H200, copies"], counter_sample_s=None, counter_phase_s=0.1 * rng.random(), _sums={})
        trace = board.trace(load, -5, end_s + 0.06, rng, marks_s=(0.0, end_s))
        (found,) = attempt_energy(trace, int(ns(0)), int(ns(end_s)), None).gpus
        assert found.energy_low_j is not None
        assert found.energy_high_j is not None
        assert found.energy_low_j <= truth_j(load, 0.0, end_s) <= found.energy_high_j


@pytest.mark.parametrize("before_s", [-12.0, -0.2])
def test_a_counter_read_far_from_a_window_makes_its_bound_narrower(before_s: float) -> None:
    """Read 15 s after it alone, or 12 s before it, too: values on one side made the bound wider, or none was used."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        load = bursty(rng, -30, 60)
        trace = replace(H200, _sums={}).trace(load, -25, 24.06, rng, marks_s=(before_s, 22.0))
        without = replace(trace, gpus=(replace(trace.gpus[0], counter=CounterColumns()),))
        halves_j = []
        for each in (trace, without):
            (found,) = attempt_energy(each, int(ns(0.0)), int(ns(7.0)), None).gpus
            assert found.energy_low_j is not None
            assert found.energy_high_j is not None
            assert found.energy_low_j <= truth_j(load, 0.0, 7.0) <= found.energy_high_j
            halves_j.append((found.energy_high_j - found.energy_low_j) / 2)
        assert halves_j[0] < halves_j[1]


def test_noise_is_not_blown_up_by_short_spacing() -> None:
    time_s = np.cumsum(np.tile([0.002, 0.020], 50))
    rng = np.random.default_rng(3)
    power_w = 400 + np.round(rng.normal(0, 0.3, len(time_s)) / 0.323) * 0.323
    curve = undo_low_pass(time_s, power_w, 10.9e-3, 0.5e-3)
    whole_j = float(np.diff(curve.at([time_s[0], time_s[-1]]))[0])
    assert whole_j == pytest.approx(400 * (time_s[-1] - time_s[0]), rel=2e-3)


@pytest.mark.parametrize("period_s", [0.1, 0.115, 0.13])
def test_the_period_is_found_and_not_assumed(period_s: float) -> None:
    rng = np.random.default_rng(4)
    trace = Board(counter_period_s=period_s, counter_phase_s=0.01).trace(constant(400, -5), 0, 20, rng)
    grids = candidate_grids(Readings.of(trace.gpus[0].counter, int(ns(0))))
    assert any(grid.period_s == pytest.approx(period_s, abs=2e-4) for grid in grids)


def test_phases_of_steps_between_two_anchors(num_windows: int) -> None:
    """Five steps of prefill and rippled decode, the counter read before the first and after the last alone."""
    rows = [phases(np.random.default_rng(seed)) for seed in range(num_windows)]
    errors, halves = np.moveaxis(np.array(rows), 2, 0)
    assert np.mean(np.abs(errors) <= halves) >= 0.97
    assert np.quantile(np.abs(errors), 0.95) <= 0.015
    assert np.median(halves) <= 0.015
