"""Predictions beside kept measurements of strategies, by the node check of one host of that kind."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import pytest

from pybench.compute.comm_model.step_time import Baseline, BaselinePhase, StepTime, whole
from pybench.judge.explanation.measured_node import MeasuredNode
from pybench.judge.explanation.node_figures import node_figures
from pybench.judge.explanation.predicted_phases import predicted_phases
from pybench.model.effort import Effort
from pybench.model.suite import Point
from pybench.model.workloads.train import Train
from pybench.store.model_shapes import load_models
from pybench.store.node_run import measured_node
from pybench.store.shipped import shipped_suites

H100S, H200S = "h100x2-20261125", "h200x2-20261126"
NODES = {H100S: "node_check-h100x2-20261125", H200S: "node_check-h200x2-20261124"}


def _file(stem: str) -> Path:
    return shipped_suites() / f"measured/{stem}.json"


@cache
def _node(machine: str) -> MeasuredNode:
    return measured_node(_file(NODES[machine]))


def _kept(machine: str, suite: str, point_id: str) -> tuple[StepTime, float]:
    """Of a kept point the predicted step and its measured seconds.

    On the H100s layers were cut evenly, as by ``layer_split``, on the H200s by their work.
    """
    points = json.loads(_file(f"{suite}-{machine}").read_text())["points"]
    (kept,) = (point for point in points if point["id"] == point_id)
    known = {field.name for field in dataclasses.fields(Train)}
    settings = Train(**{name: value for name, value in kept["settings"].items() if name in known})
    if settings.strategy == "pipeline_parallel" and machine == H100S:
        assert settings.microbatches is not None
        settings = dataclasses.replace(settings, strategy="layer_split")
    architecture = load_models()[settings.model]
    point = Point(
        id=point_id,
        benchmark=kept["benchmark"],
        axes=kept["axes"],
        settings=settings,
        effort=Effort(),
        architecture=architecture,
    )
    figures = node_figures(_node(machine), settings.dtype)
    return whole(predicted_phases(figures, point, settings.effective_batch_size)), kept["metrics"]["step_s"]["value"]


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
