"""Metrics of generation."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.core.formulas.balance import energy_imbalance
from pybench.core.formulas.joint_step import JointStep, total_work
from pybench.core.formulas.latency import latencies
from pybench.core.formulas.utilisation import model_flops, utilisation
from pybench.model.record import Energy
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate


def of_step(point: Point, step: JointStep) -> dict[str, float | None]:
    """Rates over the joint length, from the first replica's start to the last one's end; latencies; utilisation."""
    work, length_s = step.work, step.length_s
    assert isinstance(point.settings, Generate)
    computed = utilisation(point.settings, point.shape, step) if point.shape else {}
    return {
        "output_tokens_per_s": work.output_tokens / length_s,
        "total_tokens_per_s": (work.prompt_tokens + work.output_tokens) / length_s,
        "requests_per_s": work.samples / length_s,
        **latencies(step),
        **computed,
    }


def shares(_point: Point, steps: Sequence[JointStep]) -> dict[str, float]:
    """What the joules of all steps are divided by."""
    return {"energy_j_per_output_token": total_work([step.work for step in steps]).output_tokens}


def of_energy(point: Point, steps: Sequence[JointStep], energy: Energy) -> dict[str, float | None]:
    """What joules gave. Those of prefill and decode are apart where all sequences run together."""
    work = total_work([step.work for step in steps])
    phases = {phase.name: phase.energy_j for phase in energy.phases}
    return {
        "output_tokens_per_s_per_w": _over(work.output_tokens, energy.energy_j),
        "prefill_energy_j_per_prompt_token": _over(phases.get("prefill"), work.prompt_tokens),
        "decode_energy_j_per_output_token": _over(phases.get("decode"), work.output_tokens),
        "energy_imbalance_fraction": energy_imbalance(energy),
        "model_flops_per_j": _over(_model_flops(point, steps), energy.energy_j),
    }


def _model_flops(point: Point, steps: Sequence[JointStep]) -> float | None:
    """Of all steps; ``None`` where that of one is not known."""
    assert isinstance(point.settings, Generate)
    if point.shape is None:
        return None
    known = [flops for step in steps if (flops := model_flops(point.settings, point.shape, step)) is not None]
    return sum(known) if len(known) == len(steps) else None


def _over(amount: float | None, share: float | None) -> float | None:
    return amount / share if amount is not None and share else None
