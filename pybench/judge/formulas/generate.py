"""Metrics of generation."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.judge.formulas.joint_step import JointStep
from pybench.model.suite import Point


def of_step(_point: Point, step: JointStep) -> dict[str, float | None]:
    """Rates over the joint length; latencies as rank 0 saw them."""
    work = step.first.work
    return {
        "output_tokens_per_s": work.output_tokens / step.length_s,
        "total_tokens_per_s": (work.prompt_tokens + work.output_tokens) / step.length_s,
        "requests_per_s": work.samples / step.length_s,
        "ttft_s": _ttft_s(step),
        "tpot_s": _tpot_s(step),
    }


def shares(_point: Point, steps: Sequence[JointStep]) -> dict[str, float]:
    """What the joules of all steps are divided by."""
    return {"energy_j_per_output_token": sum(step.first.work.output_tokens for step in steps)}


def _ttft_s(step: JointStep) -> float | None:
    first = step.first
    return (first.token_end_ns[0] - first.start_ns) / 1e9 if first.token_end_ns else None


def _tpot_s(step: JointStep) -> float | None:
    """(last - first) / (rounds - 1), as vLLM's serving benchmark defines it."""
    ends = step.first.token_end_ns
    return (ends[-1] - ends[0]) / 1e9 / (len(ends) - 1) if len(ends) > 1 else None
