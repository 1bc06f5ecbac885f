"""A load in step with the samples of its power, found by those that come early or late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pybench import _energy
from pybench.power.energy import attempt_energy
from pybench.power.energy.hidden import hidden_w
from pybench.power.sensor_models import shipped_model
from tests.physics.board import BOARDS, H200, ns, truth_j
from tests.physics.load import square
from tests.physics.windows import LOADS, measure

TAU_S, PERIOD_S = 10.9e-3, 0.02
MEASURED = Path(__file__).parents[2] / "suites" / "measured"
OFFSETS_HZ = np.arange(-4, 5) * 0.1
Column = npt.NDArray[np.float64]


BESIDE = np.array([-4, -3, -2, -1, 1, 2, 3, 4])


def compared(time_s: Column, cycle: int) -> npt.NDArray[np.intp]:
    """Samples whose neighbours that many away are none missing."""
    reach = 4 * cycle
    span_s = time_s[2 * reach :] - time_s[: len(time_s) - 2 * reach]
    return np.flatnonzero(np.abs(span_s - 2 * reach * PERIOD_S) < 3.5e-3) + reach


def waves(time_s: Column, number: int, cycle: int, offset_hz: float, apart_by: int) -> Column:
    """Both parts of a wave at compared samples, less the mean of the neighbours so far apart."""
    own_s = time_s - time_s[len(time_s) // 2]
    wave = np.exp(2j * np.pi * number / (cycle * PERIOD_S) * own_s)
    chosen = compared(time_s, apart_by)
    apart = wave[chosen] - wave[chosen[:, None] + apart_by * BESIDE].mean(axis=1)
    turned = apart * np.exp(2j * np.pi * offset_hz * own_s[chosen])
    return np.column_stack((turned.real, turned.imag))


def inverse(columns: Column) -> Column:
    return np.asarray(np.linalg.inv(columns.T @ columns + 1e-3 * len(columns) * np.eye(2)), dtype=np.float64)


def off_by(time_s: Column, power_w: Column, cycle: int) -> Column:
    chosen = compared(time_s, cycle)
    return np.asarray(power_w[chosen] - power_w[chosen[:, None] + cycle * BESIDE].mean(axis=1))


def expected(time_s: Column, power_w: Column) -> tuple[float, float, float, int]:
    """By least squares over whole columns: the highest evidence, its frequency, amplitude and samples a cycle."""
    found = [(0.0, 0.0, 0.0, 1)]
    adjacent_w = off_by(time_s, power_w, 1)
    for cycle, periods in ((1, (1, 2)), (2, (1, 3)), (3, (1, 2, 4))):
        off_w = off_by(time_s, power_w, cycle)
        most_w = 4 * (1.4826 * np.sort(np.abs(off_w))[len(off_w) // 2] + 0.1)
        clipped_w = np.clip(off_w, -most_w, most_w)
        for number in periods:
            gain = np.hypot(1, 2 * np.pi * number / (cycle * PERIOD_S) * TAU_S)
            for offset_hz in OFFSETS_HZ:
                columns = waves(time_s, number, cycle, offset_hz, cycle)
                explained = clipped_w @ columns @ inverse(columns) @ columns.T @ clipped_w
                evidence = explained / 2 / ((clipped_w @ clipped_w - explained) / (len(off_w) - 2))
                amplitude_w = float(np.hypot(*(inverse(columns) @ columns.T @ off_w)))
                beside = waves(time_s, number, cycle, offset_hz, 1)
                shown_w = np.hypot(*(inverse(beside) @ beside.T @ adjacent_w))
                if amplitude_w * gain <= 2 * power_w.mean() and shown_w >= amplitude_w / 4:
                    found.append((float(evidence), number / (cycle * PERIOD_S) + offset_hz, amplitude_w, cycle))
    return max(found)


def samples(name: str, seed: int) -> tuple[Column, Column]:
    """Four seconds of a noisy board's series over a load."""
    rng = np.random.default_rng(seed)
    load = LOADS[name](rng, -5.0, 3.0)
    series = replace(H200, _sums={}).trace(load, 0.0, 1.4, rng).gpus[0].series
    time_s = (np.array(series.realtime_ns) - series.realtime_ns[0]) / 1e9
    return time_s, np.array(series.power_mw) / 1e3


@pytest.mark.parametrize("name", ["constant", "bursty", "square_25hz", "square_50hz", "square_100hz"])
def test_waves_by_least_squares(name: str) -> None:
    time_s, power_w = samples(name, 4)
    found = _energy.hidden_wave(time_s, power_w, tau_s=TAU_S, period_s=PERIOD_S)
    assert found == pytest.approx(expected(time_s, power_w), rel=1e-6)


def test_too_few_samples_show_nothing() -> None:
    time_s, power_w = samples("square_50hz", 1)
    assert _energy.hidden_wave(time_s[:50], power_w[:50], tau_s=TAU_S, period_s=PERIOD_S)[0] == 0.0
    assert _energy.hidden_wave(time_s[:0], power_w[:0], tau_s=TAU_S, period_s=PERIOD_S)[0] == 0.0


def test_samples_that_can_be_compared_over_whole_cycles_alone_show_nothing() -> None:
    """As in a file that was edited: a few of them have their neighbours beside them, too, but not enough."""
    number = np.arange(500)
    time_s = np.where(number < 50, 0.0, 0.005 * (number // 8 % 3)) + number * PERIOD_S
    power_w = 400 + 100 * np.cos(2 * np.pi * time_s / (3 * PERIOD_S))
    assert 0 < len(compared(time_s, 1)) < 50 < len(compared(time_s, 3))
    assert _energy.hidden_wave(time_s, power_w, tau_s=TAU_S, period_s=PERIOD_S)[0] == 0.0


@pytest.mark.parametrize("name", ["square_50hz", "square_100hz"])
def test_how_far_samples_in_step_may_be_off(name: str) -> None:
    """The load's mean is 450 W. Evenly spaced samples alone show a steady load."""
    sensor = shipped_model(H200.name, H200.driver)
    for seed in range(12):
        time_s, power_w = samples(name, seed)
        shift_w = hidden_w(time_s, power_w, sensor, folded=False)
        assert 15 < shift_w < 130
        assert abs(power_w.mean() - 450) < 1.2 * shift_w
        even_s = np.arange(0.1, 3.7, PERIOD_S)
        assert hidden_w(even_s, np.full(len(even_s), 450.0), sensor, folded=False) == 0.0


@pytest.mark.parametrize("name", ["constant", "bursty", "generation", "square_200_200"])
def test_loads_that_keep_no_step_hide_no_wave(name: str) -> None:
    sensor = shipped_model(H200.name, H200.driver)
    assert not any(hidden_w(*samples(name, seed), sensor, folded=False) for seed in range(12))


@pytest.mark.parametrize(("attempt", "gpu"), [(1, 0), (2, 1)])
def test_prefills_of_a_pipeline_hide_no_wave(attempt: int, gpu: int) -> None:
    """Real samples of an H100 of two, a stage each: they would hide a third of 430 to 530 W, of which they show 10."""
    kept = np.genfromtxt(MEASURED / "pipeline_power-h100x2-20261127.csv", delimiter=",", names=True)
    own = kept[(kept["attempt"] == attempt) & (kept["gpu"] == gpu)]
    assert len(own) == 250
    assert (
        hidden_w(own["time_s"].copy(), own["power_w"].copy(), shipped_model(H200.name, H200.driver), folded=False)
        == 0.0
    )


@pytest.mark.parametrize("board", ["H200, noisy load", "H200, copies"])
@pytest.mark.parametrize("load", ["square_25hz", "square_50hz", "square_49.8hz", "square_100hz"])
@pytest.mark.parametrize("window_s", [0.2, 1.0])
def test_a_load_in_step_is_inside_or_flagged(load: str, board: str, window_s: float) -> None:
    """With late samples left out of account, of 20 windows of 50 Hz 4 are outside without a flag, of 100 Hz 7 to 9."""
    outcome = measure(load, window_s, 20, BOARDS[board])
    assert outcome.told_percent == 100
    if load in {"square_50hz", "square_100hz"}:
        assert sum("alias_risk" in flags for flags in outcome.flags) >= 19


def test_a_long_window_is_looked_at_around_its_ends() -> None:
    rng = np.random.default_rng(5)
    load = square(300, 600, 0.01, 0.01, -5.0, 75.0)
    trace = replace(BOARDS["H200, copies"], lag_s=0.01, _sums={}).trace(load, -1.0, 70.06, rng, (0.0, 70.0))
    (found,) = attempt_energy(trace, int(ns(0.0)), int(ns(70.0)), None).gpus
    assert "alias_risk" in found.flags
    assert found.energy_low_j is not None
    assert found.energy_high_j is not None
    assert found.energy_low_j < truth_j(load, 0.0, 70.0) < found.energy_high_j
