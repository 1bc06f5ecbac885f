"""Calibration by a baseline, and the parts of a shortfall."""

from __future__ import annotations

import pytest

from pybench.explain.step_time import Baseline, BaselinePhase, NodeRates, StepTime, roofline

HALF = StepTime(compute_s=0.3, communication_s=0.1)
FULL = StepTime(compute_s=0.6)


def test_roofline_is_the_longer_of_computing_and_memory() -> None:
    """1 TFLOP at 100 TFLOP/s takes 10 ms; 20 GB at 1 TB/s take 20 ms."""
    rates = NodeRates(matmul_flops_per_s=100e12, memory_bytes_per_s=1e12)
    assert roofline(rates, 1e12, 1e9) == StepTime(compute_s=0.01)
    assert roofline(rates, 1e12, 20e9) == StepTime(memory_s=0.02)


@pytest.mark.parametrize(("shrinks", "expected_s"), [(False, 0.6), (True, 0.5)])
def test_time_above_the_prediction_is_added(shrinks: bool, expected_s: float) -> None:
    """0.2 s above 0.6 s: in full for launches, half for kernels that two GPUs share."""
    baseline = Baseline((BaselinePhase(predicted=FULL, measured_s=0.8, beyond_shrinks=shrinks),))
    assert baseline.calibrated_s([HALF]) == pytest.approx(expected_s)


def test_a_faster_baseline_scales_predictions_down() -> None:
    """Half of the predicted time: every prediction is halved."""
    baseline = Baseline((BaselinePhase(predicted=FULL, measured_s=0.3),))
    assert baseline.calibrated_s([HALF]) == pytest.approx(0.2)


def test_each_phase_has_its_own_calibration() -> None:
    """0.2 s above the first phase, none above the second."""
    first = BaselinePhase(predicted=FULL, measured_s=0.8, beyond_shrinks=True)
    second = BaselinePhase(predicted=FULL, measured_s=0.6)
    assert Baseline((first, second)).calibrated_s([HALF, HALF]) == pytest.approx(0.5 + 0.4)


def test_parts_add_up_to_the_shortfall() -> None:
    """Two GPUs take 0.65 s of a step that takes 0.8 s on one: 0.25 s beyond the half."""
    baseline = Baseline((BaselinePhase(predicted=FULL, measured_s=0.8),))
    slow = StepTime(compute_s=0.33, communication_s=0.1)
    parts = baseline.shortfall(0.65, predicted=[slow], even=[HALF], share=0.5)
    assert parts["compute"] == pytest.approx(0.0)
    assert parts["communication"] == pytest.approx(0.1)
    assert parts["software"] == pytest.approx(0.1)
    assert parts["imbalance"] == pytest.approx(0.03)
    assert parts["unexplained"] == pytest.approx(0.02)
    assert sum(parts.values()) == pytest.approx(0.25)
