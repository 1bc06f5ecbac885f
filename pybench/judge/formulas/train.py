"""Metrics of training."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.judge.formulas.joint_step import JointStep
from pybench.model.suite import Point
from pybench.model.workloads.train import Train


def of_step(point: Point, step: JointStep) -> dict[str, float | None]:
    """Rates over the joint length."""
    samples = step.first.work.samples
    return {
        "tokens_per_s": samples * _settings(point).sequence_tokens / step.length_s,
        "samples_per_s": samples / step.length_s,
    }


def shares(point: Point, steps: Sequence[JointStep]) -> dict[str, float]:
    """What the joules of all steps are divided by."""
    samples = sum(step.first.work.samples for step in steps)
    return {"energy_j_per_token": samples * _settings(point).sequence_tokens}


def _settings(point: Point) -> Train:
    assert isinstance(point.settings, Train)
    return point.settings
