"""A sensor's window, low-pass and lag from its readings of square waves, on simulated boards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.power.calibrate import fit_sensor
from pybench.power.samples import samples_of
from tests.physics.board import A100, H200, Board, ns
from tests.physics.load import Column, Load, square

SCHEDULE = ((0.3, 0.3, 3.0), (0.0553, 0.0553, 3.0), (0.0217, 0.0217, 3.0))


def square_waves(*high_w: float) -> tuple[Load, list[list[tuple[float, float]]]]:
    """100 W, and more when it is on, part by part: under a power limit a long part draws less."""
    parts, now_s = [], 0.0
    for on_s, off_s, length_s in SCHEDULE:
        starts_s = now_s + np.arange(int(length_s / (on_s + off_s))) * (on_s + off_s)
        parts.append([(float(start_s), float(start_s + on_s)) for start_s in starts_s])
        now_s = parts[-1][-1][1] + off_s
    edge_s = np.concatenate(([-5.0], np.ravel([span for part in parts for span in part])))
    on_w = np.repeat(high_w, [len(part) for part in parts])
    return Load(edge_s, np.append(np.column_stack((np.full(len(on_w), 100.0), on_w)).ravel(), 100.0)), parts


@pytest.mark.parametrize(
    ("board", "window_s", "tau_s"),
    [
        pytest.param(H200, 0.0, 10.9e-3, id="H200", marks=pytest.mark.no_cover),  # the lines of the other one
        pytest.param(A100, 25e-3, 0.0, id="A100, 25 of every 101 ms"),
    ],
)
def test_a_sensor_is_found(board: Board, window_s: float, tau_s: float) -> None:
    load, parts = square_waves(540, 650, 660)
    trace = replace(board, _sums={}).trace(load, -1, parts[-1][-1][1] + 0.2, np.random.default_rng(1))
    samples = samples_of(trace.gpus[0].series, trace.offsets, int(ns(0)))
    fit = fit_sensor(samples.time_s, samples.power_w, parts)
    assert fit is not None
    found = fit.response
    assert found.window_s == pytest.approx(window_s, abs=3e-3)
    assert found.tau_s == pytest.approx(tau_s, abs=1e-3)
    assert found.lag_s == pytest.approx(0.0, abs=1.5e-3)
    assert found.low_w == pytest.approx(100, abs=3)
    assert found.high_w == pytest.approx(650, abs=6)
    assert found.off_fraction < 0.05


def jittered_s(rng: np.random.Generator, end_s: float) -> Column:
    """Times of the fake H200's samples: every 20 ms, up to 3 ms early or late, a few later, a few lost."""
    time_s = np.arange(rng.uniform(-1.0, -0.98), end_s, 0.02)
    late_s = np.where(rng.random(len(time_s)) < 0.02, rng.uniform(0.0, 11e-3, len(time_s)), 0.0)
    time_s = np.sort(time_s + rng.uniform(-3e-3, 3e-3, len(time_s)) + late_s)
    return time_s[rng.random(len(time_s)) >= 0.005]


def test_readings_near_edges_are_not_taken_for_stray() -> None:
    """Of readings without noise a wrong window, low-pass and lag may meet all but those near the load's edges.

    Here no window, 13.5 ms and a lag of -7.5 ms did.
    """
    half_s, num_periods = 0.077, 24
    load = square(600, 100, half_s, half_s, -20 * half_s, (2 * num_periods + 2) * half_s)
    time_s = jittered_s(np.random.default_rng(13), 2 * num_periods * half_s)
    power_w = np.round(load.low_pass_w(time_s, 10.9e-3) / 0.323) * 0.323
    starts_s = 2 * half_s * np.arange(num_periods)
    fit = fit_sensor(time_s, power_w, [[(float(start_s), float(start_s + half_s)) for start_s in starts_s]])
    assert fit is not None
    assert fit.response.tau_s == pytest.approx(10.9e-3, abs=0.2e-3)
    assert fit.response.window_s < 5e-3
    # Steps of 0.323 W: their root mean square is 0.093 W, of 500 W.
    assert fit.response.off_fraction == pytest.approx(0.093 / 500, rel=0.2)


def test_too_few_readings_fit_nothing() -> None:
    _, parts = square_waves(650, 650, 650)
    assert fit_sensor(np.array([0.1, 0.2]), np.array([100.0, 650.0]), parts) is None
