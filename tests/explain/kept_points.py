"""Points of kept results as the model takes them."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any

from pybench.explain.comm_model.step_time import StepTime, whole
from pybench.explain.measured_node import MeasuredNode
from pybench.explain.node_figures import node_figures
from pybench.explain.node_run import measured_node
from pybench.explain.predicted_phases import predicted_phases
from pybench.files.model_shapes import load_models
from pybench.files.shipped import shipped_suites
from pybench.model.effort import Effort
from pybench.model.suite import Point
from pybench.model.workloads.train import Train


def kept_points(stem: str) -> list[dict[str, Any]]:
    """Those that were measured."""
    kept = json.loads((shipped_suites() / f"measured/{stem}.json").read_text())
    return [point for point in kept["points"] if point["status"] == "ok"]


def settings_of(kept: dict[str, Any]) -> Train:
    """Of a training."""
    known = {field.name for field in dataclasses.fields(Train)}
    return Train(**{name: value for name, value in kept["settings"].items() if name in known})


def predicted_and_measured(node: str, kept: dict[str, Any], settings: Train) -> tuple[StepTime, float]:
    """The predicted step of these ``settings`` by a kept node check, and the measured seconds of the point."""
    point = Point(
        id=kept["id"],
        benchmark=kept["benchmark"],
        axes=kept["axes"],
        settings=settings,
        effort=Effort(),
        architecture=load_models()[settings.model],
    )
    figures = node_figures(_node(node), settings.dtype)
    return whole(predicted_phases(figures, point, settings.effective_batch_size)), kept["metrics"]["step_s"]["value"]


@cache
def _node(stem: str) -> MeasuredNode:
    return measured_node(shipped_suites() / f"measured/{stem}.json")
