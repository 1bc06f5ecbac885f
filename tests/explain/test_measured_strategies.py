"""Predictions beside kept measurements of strategies, by the node check of one host of that kind."""

from __future__ import annotations

import dataclasses

import pytest

from pybench.explain.comm_model.step_time import Baseline, BaselinePhase, StepTime
from tests.explain.kept_points import kept_points, predicted_and_measured, settings_of

H100S, H200S = "h100x2-20261125", "h200x2-20261126"
NODES = {H100S: "node_check-h100x2-20261125", H200S: "node_check-h200x2-20261124"}


def _kept(machine: str, suite: str, point_id: str) -> tuple[StepTime, float]:
    """Of a kept point the predicted step and its measured seconds.

    On the H100s layers were cut evenly, as by ``layer_split``, on the H200s by their work.
    """
    (kept,) = (point for point in kept_points(f"{suite}-{machine}") if point["id"] == point_id)
    settings = settings_of(kept)
    if settings.strategy == "pipeline_parallel" and machine == H100S:
        assert settings.microbatches is not None
        settings = dataclasses.replace(settings, strategy="layer_split")
    return predicted_and_measured(NODES[machine], kept, settings)


@pytest.mark.parametrize(
    ("machine", "baseline", "split", "off"),
    [
        (
            H100S,
            ("train_strategies_one", "split_sequence[context_parallel=1]"),
            ("train_strategies", "split_sequence[context_parallel=2]"),
            (-0.08, -0.04),
        ),
        (
            H100S,
            ("pipeline_scaling", "stages[schedule=gpipe,pipeline_parallel=1]"),
            ("pipeline_scaling", "stages[schedule=gpipe,pipeline_parallel=2]"),
            (-0.08, -0.04),
        ),
        (
            H100S,
            ("pipeline_scaling", "stages[schedule=gpipe,pipeline_parallel=1]"),
            ("pipeline_scaling", "interleaved[pipeline_parallel=2]"),
            (-0.08, -0.04),
        ),
        (
            H200S,
            ("pipeline_scaling", "stages[schedule=gpipe,pipeline_parallel=1]"),
            ("pipeline_scaling", "stages[schedule=gpipe,pipeline_parallel=2]"),
            (-0.01, 0.01),
        ),
        (
            H200S,
            ("pipeline_scaling", "stages[schedule=gpipe,pipeline_parallel=1]"),
            ("pipeline_scaling", "interleaved[pipeline_parallel=2]"),
            (-0.08, -0.04),
        ),
        (H200S, ("ddp_strong", "strong[data_parallel=1]"), ("ddp_strong", "strong[data_parallel=2]"), (-0.03, 0.0)),
    ],
    ids=["chunks", "stages", "interleaved", "stages by work", "interleaved by work", "ddp"],
)
def test_how_near_predictions_come(
    machine: str, baseline: tuple[str, str], split: tuple[str, str], off: tuple[float, float]
) -> None:
    """Predicted over measured seconds of a step, less 1."""
    (alone, alone_s), (step, step_s) = _kept(machine, *baseline), _kept(machine, *split)
    calibrated = Baseline((BaselinePhase(predicted=alone, measured_s=alone_s, beyond_shrinks=True),))
    assert off[0] < calibrated.calibrated_s([step]) / step_s - 1 < off[1]
