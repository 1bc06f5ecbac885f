"""Metrics of workloads whose ranks report all of them: what measures a node itself."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.core.formulas.joint_step import JointStep
from pybench.model.suite import Point


def of_step(_point: Point, _step: JointStep) -> dict[str, float | None]:
    """Nothing but what the ranks reported."""
    return {}


def shares(_point: Point, _steps: Sequence[JointStep]) -> dict[str, float]:
    """Joules are divided by nothing: steps do not all do the same work."""
    return {}
