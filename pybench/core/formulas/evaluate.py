"""Metrics of evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.core.formulas.joint_step import JointStep
from pybench.model.suite import Point


def of_step(_point: Point, step: JointStep) -> dict[str, float | None]:
    """Samples over the joint length."""
    return {"samples_per_s": step.first.work.samples / step.length_s}


def shares(_point: Point, steps: Sequence[JointStep]) -> dict[str, float]:
    """What the joules of all steps are divided by."""
    return {"energy_j_per_sample": sum(step.first.work.samples for step in steps)}
