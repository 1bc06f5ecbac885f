"""Loads in step with the sensor's samples: found by repeating samples, and by late ones."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pybench.power.curve import ENDS_ALIKE, Curve
from pybench.power.estimate import attempt_energy
from pybench.power.in_step import hidden_w, repeats
from tests.physics.board import BOARDS, H200, ns, truth_j
from tests.physics.load import square
from tests.physics.windows import LOADS, measure

PERIOD_S = 0.020
MEASURED = Path(__file__).parents[2] / "suites" / "measured"
Column = npt.NDArray[np.float64]


def repeating(power_w: Column, seed: int = 0) -> tuple[Column, Column]:
    """Samples of these powers at times with an error of 0.5 ms."""
    rng = np.random.default_rng(seed)
    return np.arange(len(power_w)) * PERIOD_S + rng.normal(0, 0.5e-3, len(power_w)), power_w


def test_a_cycle_keeps_step() -> None:
    assert repeats(*repeating(np.resize([300.0, 600.0, 450.0, 350.0], 400)), PERIOD_S)[0] == 1.0


def test_a_trend_is_no_repetition() -> None:
    """From an idle board to work and back: samples are similar at any distance, their changes are not."""
    rng = np.random.default_rng(1)
    power_w = np.repeat([120.0, 690.0, 120.0], 200) + rng.normal(0, 15, 600)
    assert repeats(*repeating(power_w), PERIOD_S)[0] == 0.0


def test_repeating_changes_alone_are_no_repetition() -> None:
    """A cycle on a power that wanders by more."""
    rng = np.random.default_rng(2)
    wandering_w = np.convolve(rng.normal(0, 60, 406), np.ones(7), "valid")
    cycle_w = np.resize([0.0, 140.0, 40.0, -110.0, 20.0], 400)
    assert repeats(*repeating(500 + wandering_w + cycle_w), PERIOD_S)[0] < 0.2
    assert repeats(*repeating(500 + cycle_w), PERIOD_S)[0] == 1.0


@pytest.mark.parametrize("power_w", [np.full(200, 400.0), np.array([300.0, 500.0]), np.resize([300.0, 600.0], 12)])
def test_steady_or_few_samples_repeat_nothing(power_w: Column) -> None:
    assert repeats(*repeating(power_w), PERIOD_S)[0] == 0.0


def test_errors_of_alike_cells_add_up() -> None:
    """A cycle of four samples leaves a sixteenth of the variance, twice for each of 30 cycles."""
    (_, shared), (_, by_noise) = (
        repeats(*repeating(power_w), PERIOD_S)
        for power_w in (np.resize([300.0, 600.0, 450.0, 350.0], 400), np.random.default_rng(3).normal(400, 9, 400))
    )
    assert shared == pytest.approx(2 * 30 / 16, rel=0.05)
    assert by_noise < 0.7
    time_s = np.arange(101, dtype=np.float64) * PERIOD_S
    curve = Curve.of_pieces(time_s, np.full(100, 8.0), np.full(100, 2.0), repeated_j2=np.full(100, shared * 4.0))
    assert curve.shared_sigma_j([(0.0, 1.0)]) == pytest.approx(math.sqrt(50 * shared * 4.0))


def test_the_ends_of_several_windows_have_correlated_errors() -> None:
    """Pieces of 20 ms with a standard deviation of 2 J each."""
    time_s = np.arange(101, dtype=np.float64) * PERIOD_S
    curve = Curve.of_pieces(time_s, np.full(100, 8.0), np.full(100, 2.0))
    windows = [(0.11, 0.55), (0.71, 1.15), (1.31, 1.75)]
    assert curve.shared_sigma_j(windows[:1]) == 0.0
    # Six ends of 2 J, less the variance of each alone.
    assert curve.shared_sigma_j(windows) == pytest.approx(ENDS_ALIKE * (12**2 - 6 * 2**2) ** 0.5)


@pytest.mark.parametrize("board", ["H200", "H200, copies"])
def test_bounds_of_trainings_are_narrow_and_hold(num_windows: int, board: str) -> None:
    """Layers of any length, and an idle board after the last step."""
    outcome = measure("training", 6.0, num_windows, BOARDS[board])
    assert outcome.told_percent >= 97
    assert outcome.half_width_percent <= 0.6


def test_bounds_hold_where_layers_repeat_for_a_second() -> None:
    """Without the errors of alike cells four of these windows are outside."""
    outcome = measure("training", 1.0, 100, BOARDS["H200, copies"])
    assert outcome.told_percent >= 98
    assert outcome.half_width_percent <= 1.15


@pytest.mark.parametrize("gap_s", [3.0, 40.0, 1e9])
def test_repetitions_on_both_sides_of_a_gap_count(gap_s: float) -> None:
    """An edited file may have a gap of years; it costs no more."""
    time_s, power_w = repeating(np.resize([300.0, 500.0, 650.0, 350.0, 420.0], 400))
    time_s[200:] += gap_s
    assert repeats(time_s, power_w, PERIOD_S)[0] == 1.0


def test_samples_with_most_missing_show_no_repetition() -> None:
    time_s = np.arange(50_000, dtype=np.float64) * (PERIOD_S * 121)
    assert repeats(time_s, np.resize([300.0, 500.0], 50_000), PERIOD_S)[0] == 0.0


def samples(name: str, seed: int) -> tuple[Column, Column]:
    """Four seconds of a noisy board's series over a load."""
    rng = np.random.default_rng(seed)
    load = LOADS[name](rng, -5.0, 3.0)
    series = replace(H200, _sums={}).trace(load, 0.0, 1.4, rng).gpus[0].series
    time_s = (np.array(series.realtime_ns) - series.realtime_ns[0]) / 1e9
    return time_s, np.array(series.power_mw) / 1e3


def test_too_few_samples_show_nothing() -> None:
    time_s, power_w = samples("square_50hz", 1)
    for num in (0, 50):
        assert hidden_w(time_s[:num], power_w[:num], PERIOD_S) == 0.0


@pytest.mark.parametrize("name", ["square_50hz", "square_100hz"])
def test_the_possible_error_of_samples_in_step(name: str) -> None:
    """The load's mean is 450 W. Evenly spaced samples show a steady load. Seed 6 has one late sample in two seconds."""
    for seed in (*range(6), *range(7, 13)):
        time_s, power_w = samples(name, seed)
        shift_w = hidden_w(time_s, power_w, PERIOD_S)
        assert 15 < shift_w < 130
        assert abs(power_w.mean() - 450) < 1.2 * shift_w
        even_s = np.arange(0.1, 3.7, PERIOD_S)
        assert hidden_w(even_s, np.full(len(even_s), 450.0), PERIOD_S) == 0.0


@pytest.mark.parametrize("name", ["constant", "bursty", "generation", "square_200_200"])
def test_loads_out_of_step_have_no_hidden_wave(name: str) -> None:
    assert not any(hidden_w(*samples(name, seed), PERIOD_S) for seed in range(12))


@pytest.mark.parametrize(("attempt", "gpu"), [(1, 0), (2, 1)])
def test_prefills_of_a_pipeline_have_no_hidden_wave(attempt: int, gpu: int) -> None:
    """Real samples of two H100s, a pipeline stage each: a hidden wave would be a third of their 430 to 530 W."""
    kept = np.genfromtxt(MEASURED / "pipeline_power-h100x2-20261127.csv", delimiter=",", names=True)
    rows = kept[(kept["attempt"] == attempt) & (kept["gpu"] == gpu)]
    assert len(rows) == 250
    assert hidden_w(rows["time_s"].copy(), rows["power_w"].copy(), PERIOD_S) == 0.0


@pytest.mark.parametrize("window", [1, 2])
def test_jumps_at_late_samples_are_no_hidden_wave(window: int) -> None:
    """Real samples of an H200 under an optimizer on the host and a training: by equal variances F is 61 and 15."""
    kept = np.genfromtxt(MEASURED / "late_samples-h200x2-20261129.csv", delimiter=",", names=True)
    rows = kept[kept["window"] == window]
    assert len(rows) in {400, 458}
    assert hidden_w(rows["time_s"].copy(), rows["power_w"].copy(), PERIOD_S) == 0.0


@pytest.mark.parametrize("board", ["H200, noisy load", "H200, copies"])
@pytest.mark.parametrize("load", ["square_25hz", "square_50hz", "square_49.8hz", "square_100hz"])
@pytest.mark.parametrize("window_s", [0.2, 1.0])
def test_a_load_in_step_is_inside_or_flagged(load: str, board: str, window_s: float) -> None:
    """Without late samples, 4 of 20 windows at 50 Hz and 7 to 9 at 100 Hz would be outside without a flag."""
    outcome = measure(load, window_s, 20, BOARDS[board])
    assert outcome.told_percent == 100
    if load in {"square_50hz", "square_100hz"}:
        assert sum("alias_risk" in flags for flags in outcome.flags) >= 19


def test_a_long_window_is_checked_at_its_ends() -> None:
    rng = np.random.default_rng(5)
    load = square(300, 600, 0.01, 0.01, -5.0, 75.0)
    trace = replace(BOARDS["H200, copies"], lag_s=0.01, _sums={}).trace(load, -1.0, 70.06, rng, (0.0, 70.0))
    (gpu,) = attempt_energy(trace, int(ns(0.0)), int(ns(70.0)), None).gpus
    assert "alias_risk" in gpu.flags
    assert gpu.energy_low_j is not None
    assert gpu.energy_high_j is not None
    assert gpu.energy_low_j < truth_j(load, 0.0, 70.0) < gpu.energy_high_j
