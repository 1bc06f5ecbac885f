"""Folding a fast periodic load's samples: found where it is, refused where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.power.curve import UNKNOWN_PART
from pybench.power.ripple import Ripple, find_ripple, tuned, wave_sum
from pybench.power.samples import POWER_STEP_W
from tests.physics import windows
from tests.physics.board import BOARDS, Board
from tests.physics.load import Load, constant, square
from tests.physics.windows import LOADS, measure

NOISE_W = POWER_STEP_W / np.sqrt(12)


def samples(load: Load, seed: int, length_s: float = 4.0, missing: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a load in the series, in s and W."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(rng.random() * 0.02, length_s, 0.02)
    time_s = time_s[rng.random(len(time_s)) >= missing]
    time_s += rng.normal(0, 0.5e-3, len(time_s))
    power_w = np.round(load.low_pass_w(time_s, 10.9e-3) / POWER_STEP_W) * POWER_STEP_W
    return time_s, power_w


def found(load: Load, seed: int = 0, missing: float = 0.01) -> Ripple | None:
    return find_ripple(*samples(load, seed, missing=missing), NOISE_W)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("frequency_hz", [23.0, 30.0, 47.0, 71.3])
def test_the_shape_between_samples_is_found(frequency_hz: float, missing: float) -> None:
    load = square(300, 600, 0.4 / frequency_hz, 0.6 / frequency_hz, -5, 6)
    wave = found(load, missing=missing)
    assert wave is not None
    assert wave.frequency_hz == pytest.approx(frequency_hz, abs=0.02)
    times_s = np.arange(1.0, 3.0, 0.0007)
    true_j = load.energy_j(times_s)
    swing_j = true_j - np.polyval(np.polyfit(times_s, true_j, 1), times_s)
    told_j = replace(wave, tau_s=10.9e-3).energy_j(times_s)
    assert np.std(told_j - told_j.mean() - swing_j) < 0.2 * np.std(swing_j)


@pytest.mark.parametrize("name", ["constant", "square_50_50", "square_200_200", "bursty", "generation"])
def test_no_ripple_where_the_load_has_none(name: str) -> None:
    for seed in range(10):
        assert found(LOADS[name](np.random.default_rng(seed), -5, 6), seed) is None


def test_a_step_in_evenly_spaced_samples_is_no_ripple() -> None:
    """Such samples can't tell a load of nearly 50 Hz from a slow one, and slow ones are what loads are."""
    time_s = np.arange(0, 2, 0.02)
    assert find_ripple(time_s, np.where(time_s < 1, 100.0, 600.0), NOISE_W) is None


@pytest.mark.parametrize("ended_s", [0.06, 0.12])
def test_a_load_that_ends_a_little_before_the_samples_is_no_ripple(ended_s: float) -> None:
    """It would be taken to go on after them."""
    rounds = square(300, 600, 0.4 / 30, 0.6 / 30, -5, 4 - ended_s)
    assert found(rounds) is None


def test_noise_is_no_ripple() -> None:
    rng = np.random.default_rng(5)
    time_s = np.arange(0, 4, 0.02) + rng.normal(0, 1e-3, 200)
    assert find_ripple(time_s, 400 + 20 * rng.standard_normal(200), NOISE_W) is None


def test_too_few_samples_tell_nothing() -> None:
    time_s, power_w = samples(square(300, 600, 0.4 / 30, 0.6 / 30, -5, 6), 0, length_s=1.0)
    assert find_ripple(time_s, power_w, NOISE_W) is None


def test_samples_evenly_spaced_by_the_period_see_nothing() -> None:
    time_s = np.arange(0, 4, 0.02)
    assert find_ripple(time_s, square(300, 600, 0.01, 0.01, -5, 6).low_pass_w(time_s, 10.9e-3), NOISE_W) is None


def test_joules_are_counted_up_between_its_ends_only() -> None:
    ripple = Ripple(0.0, 1.0, 20.0, np.array([100.0 + 0j]))
    # 100 W · cos: a quarter of a period holds 100 / (2π·20) J.
    told_j = ripple.energy_j(np.array([-1.0, 0.0, 0.0125, 1.0, 2.0]))
    np.testing.assert_allclose(told_j, [0, 0, 100 / (2 * np.pi * 20), 0, 0], atol=1e-9)
    np.testing.assert_allclose(ripple.power_seen_w(np.array([-0.1, 0.0, 0.025, 1.1])), [0, 100, -100, 0], atol=1e-9)


@pytest.mark.parametrize("name", ["decode_47hz", "decode_70hz", "decode_drifting", "decode_jittered"])
def test_bounds_hold_where_the_period_does_not(num_windows: int, name: str) -> None:
    """Also for 70 Hz, which samples 20 ms apart see as 30 Hz and as 20 Hz."""
    assert measure(name, 1.0, num_windows).inside_percent >= 97


@pytest.mark.parametrize("name", ["decode_47hz", "decode_97hz"])
@pytest.mark.parametrize("board", ["H200", "H200, noisy load", "H200, copies"])
def test_bounds_of_short_windows_hold_where_samples_show_a_slow_wave(num_windows: int, name: str, board: str) -> None:
    """Samples every 20 ms show 3 Hz for both; only late samples distinguish them."""
    assert measure(name, 0.2, num_windows, BOARDS[board]).inside_percent >= 97


@pytest.mark.parametrize(("name", "window_s"), [("decode_49hz", 0.2), ("decode_49hz", 5.0), ("decode_101hz", 0.2)])
@pytest.mark.parametrize("board", ["H200", "H200, copies"])
def test_bounds_hold_where_the_counter_takes_the_load_for_a_slow_wave(
    num_windows: int, name: str, window_s: float, board: str
) -> None:
    """A counter that adds up samples of 20 ms holds up to 8 J too much or too little of a load of 49 Hz, in turn."""
    outcome = measure(name, window_s, num_windows, BOARDS[board])
    assert outcome.inside_percent >= 97
    assert outcome.half_width_percent < {0.2: 4.0, 5.0: 1.0}[window_s]


@pytest.mark.parametrize("board", ["H200 quiet", "H200, copies"])
def test_no_wave_is_higher_than_the_samples_swing(board: str) -> None:
    """Half a turn of 49.8 Hz past the samples fits waves of 400 to 1,700 W: joules were 94 to 99 % too low."""
    outcome = measure("square_49.8hz", 5.0, 40, BOARDS[board])
    assert np.abs(outcome.error_fraction).max() < 0.15
    assert outcome.told_percent == 100


def test_a_wave_that_drifts_past_the_counters_samples_is_doubt_of_its_values() -> None:
    """100 W at 49.5 Hz and 20 ms: 0.5 Hz, so that sums swing by 100 W / (2π 0.5 Hz). In step, the mean power is off."""
    ripple = Ripple(0.0, 4.0, 49.5, np.array([100.0 + 0j]))
    assert ripple.drifting_j2(0.02) == pytest.approx((100 / (2 * np.pi * 0.5)) ** 2 / 2, rel=0.1)
    assert ripple.in_step_w(0.02) == 0.0
    in_step = replace(ripple, frequency_hz=49.9)
    assert in_step.in_step_w(0.02) >= 100 / np.sqrt(2)


def test_a_harmonic_in_step_with_the_samples_is_no_part_of_the_mean() -> None:
    """The fifth of 30 Hz is a constant to samples of 20 ms; a load on for 40 % of its period has none."""
    load = square(300, 600, 0.4 / 30, 0.6 / 30, -5, 6)
    off_w, doubt_w, free_off_w = [], [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        time_s, power_w = samples(load, seed)
        noisy_w = power_w + 12 * rng.standard_normal(len(power_w))
        free = find_ripple(time_s, noisy_w, 12.0)
        if free is None:  # an outlier near an end
            continue
        ripple = replace(free, tau_s=10.9e-3).settled(0.02)
        means_w = [float(np.mean(noisy_w - wave.power_seen_w(time_s))) for wave in (ripple, free)]
        off_w.append(means_w[0] - 480)
        free_off_w.append(means_w[1] - 480)
        doubt_w.append(float(np.hypot(UNKNOWN_PART * ripple.in_step_w(0.02), 12 / np.sqrt(len(time_s)))))
    assert len(off_w) > 20
    assert np.std(off_w) < 0.7 * np.std(free_off_w)
    assert np.mean(np.abs(off_w) < 3 * np.array(doubt_w)) == 1.0
    assert np.mean(doubt_w) < 6


@pytest.mark.parametrize("name", ["decode_30hz", "decode_20hz"])
@pytest.mark.parametrize("board", ["H200", "H200 quiet"])
def test_bounds_hold_where_a_harmonic_keeps_step_with_the_samples(num_windows: int, name: str, board: str) -> None:
    outcome = measure(name, 1.0, num_windows, BOARDS[board])
    assert outcome.inside_percent >= 97
    assert outcome.p95_percent < 1.2


def test_a_load_that_ends_beyond_the_folded_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds after a window, where the counter is read on: of 100 windows 13 were outside by such readings."""
    monkeypatch.setattr(windows, "LOAD_AFTER_S", 3.0)
    monkeypatch.setattr(windows, "MARKED_AFTER_S", 5.0)
    monkeypatch.setattr(windows, "MARKS_APART_S", 0.3)
    outcome = measure("decode_30hz", 1.0, 30, BOARDS["H200 quiet"], marked=True)
    assert outcome.inside_percent == 100


@pytest.mark.parametrize("hz", [1.3, 3.1])
def test_slow_waves_stay_slow(num_windows: int, hz: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A swing of 4 % at 1.3 Hz has the samples of 48.7 Hz, except late ones."""

    def wave(rng: np.random.Generator, start_s: float, end_s: float) -> Load:
        edge_s = np.arange(start_s - rng.random(), end_s, 0.004)
        return Load(edge_s, 450 + 20 * np.sin(2 * np.pi * hz * edge_s + rng.random() * 2 * np.pi))

    monkeypatch.setitem(LOADS, "wave", wave)
    outcome = measure("wave", 1.0, num_windows, BOARDS["H200, copies"])
    assert outcome.p95_percent <= 0.15
    assert outcome.inside_percent >= 97


@pytest.mark.parametrize("board", [Board(missing_fraction=0.3), Board(tau_s=0.013)])
def test_bounds_hold_with_other_samples(num_windows: int, board: Board) -> None:
    assert measure("decode_30hz", 1.0, num_windows, board).inside_percent >= 97


def test_a_steady_load_has_no_swing() -> None:
    assert found(constant(400, -5)) is None


@pytest.mark.parametrize(("frequency_hz", "num"), [(30.02, 5), (61.7, 4), (97.3, 2)])
def test_a_frequency_is_tuned_to_that_of_the_samples(frequency_hz: float, num: int) -> None:
    time_s = np.linspace(-2.0, 2.04, 200)
    turns = 2 * np.pi * frequency_hz * time_s
    power_w = 400 + 3 * time_s + 80 * np.cos(turns) + 20 * np.sin(2 * turns)
    fit = tuned(time_s, power_w, frequency_hz - 0.02)
    assert fit.frequency_hz == pytest.approx(frequency_hz, abs=1e-6)
    assert fit.seen_w == pytest.approx([80, -20j, 0, 0, 0][:num], abs=1e-3)
    assert fit.left_w < 1e-3


def test_the_residual_is_of_held_out_samples() -> None:
    """Pairs of samples in turn, each half predicted from the other."""
    rng = np.random.default_rng(3)
    time_s, power_w = np.cumsum(rng.uniform(0.019, 0.022, 90)) - 0.9, rng.normal(400, 50, 90)
    fit = tuned(time_s, power_w, 30.0)
    columns, first = _columns(time_s, fit.frequency_hz, 5), np.arange(90) // 2 % 2 == 0
    off_w = np.empty(90)
    for half in (first, ~first):
        weight, *_ = np.linalg.lstsq(columns[half], power_w[half])
        off_w[~half] = power_w[~half] - columns[~half] @ weight
    assert fit.left_w == pytest.approx(np.sqrt(np.mean(off_w**2)), rel=1e-5)


def _columns(time_s: np.ndarray, frequency_hz: float, num: int) -> np.ndarray:
    phase = 2 * np.pi * frequency_hz * np.outer(time_s, np.arange(1, num + 1))
    return np.column_stack((np.cos(phase), np.sin(phase), np.ones(len(time_s)), time_s))


def test_the_sum_of_harmonics() -> None:
    """At times of any shape, also days away, at a half and a quarter turn."""
    time_s = np.array([[0.0, 1 / 120, 1 / 60], [-0.3, 17.77, 86_400.001]])
    amplitude_w = np.array([3 - 4j, 1j, 0.5])
    expected_w = sum(
        np.real(each * np.exp(2j * np.pi * order * (30 * time_s % 1)))
        for order, each in enumerate(amplitude_w, start=1)
    )
    assert wave_sum(time_s, 30.0, amplitude_w) == pytest.approx(expected_w, abs=1e-9)
