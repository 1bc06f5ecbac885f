"""Metrics of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.core.formulas.joint_step import JointStep
from pybench.model.suite import Point
from pybench.model.workloads.checkpoint import LOAD, SAVE


def of_step(_point: Point, step: JointStep) -> dict[str, float | None]:
    """Lengths of saving and loading over all ranks, and the bytes of the files over them."""
    sizes = [rank.values["checkpoint_bytes"] for rank in step.ranks if "checkpoint_bytes" in rank.values]
    save_s, load_s = _length_s(step, SAVE), _length_s(step, LOAD)
    return {
        "save_s": save_s,
        "load_s": load_s,
        "save_bytes_per_s": max(sizes) / save_s if sizes and save_s else None,
        "load_bytes_per_s": max(sizes) / load_s if sizes and load_s else None,
    }


def shares(_point: Point, _steps: Sequence[JointStep]) -> dict[str, float]:
    """Joules are divided by nothing: phases of a step have their own."""
    return {}


def _length_s(step: JointStep, phase: str) -> float | None:
    """From the first rank's start to the last rank's end."""
    spans = [span for rank in step.ranks for span in rank.spans if span.name == phase]
    if not spans:
        return None
    return (max(span.end_ns for span in spans) - min(span.start_ns for span in spans)) / 1e9
