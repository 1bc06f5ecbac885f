"""A sensor's window, low-pass and lag from its readings of square waves, on simulated boards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.compute.energy.sensor_fit import fit_sensor
from pybench.compute.energy.series import samples_of
from tests.physics.board import A100, H200, Board, ns
from tests.physics.load import Load

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
    samples = samples_of(trace.gpus[0], trace.offsets, int(ns(0)))
    fit = fit_sensor(samples.time_s, samples.power_w, parts)
    assert fit is not None
    found = fit.response
    assert found.window_s == pytest.approx(window_s, abs=3e-3)
    assert found.tau_s == pytest.approx(tau_s, abs=1e-3)
    assert found.lag_s == pytest.approx(0.0, abs=1.5e-3)
    assert found.low_w == pytest.approx(100, abs=3)
    assert found.high_w == pytest.approx(650, abs=6)
    assert found.off_fraction < 0.05


def test_too_few_readings_fit_nothing() -> None:
    _, parts = square_waves(650, 650, 650)
    assert fit_sensor(np.array([0.1, 0.2]), np.array([100.0, 650.0]), parts) is None
