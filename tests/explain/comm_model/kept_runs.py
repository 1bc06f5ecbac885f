"""Kept runs of a node's own check and of a suite, as the model of step times takes them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pybench.explain.comm_model.alpha_beta import fit
from pybench.explain.comm_model.figures import NodeFigures
from pybench.explain.comm_model.generation import GenerationShape
from pybench.explain.comm_model.norms import fused_norms, plain_norms
from pybench.explain.comm_model.step_time import Baseline, BaselinePhase, StepTime
from pybench.files.model_shapes import load_models
from pybench.files.shipped import shipped_suites
from pybench.model.decoder_shape import DecoderShape

LLAMA = DecoderShape.from_config(load_models()["llama-3.1-8b"])
ONE = {
    "tp_scaling": GenerationShape(
        samples=64, prompt_tokens=512, output_tokens=128, element_bytes=2, norms=plain_norms(2)
    ),
    "tp_scaling_vllm": GenerationShape(
        samples=256, prompt_tokens=512, output_tokens=128, element_bytes=2, norms=fused_norms(2)
    ),
}
"""What one GPU generates in these suites, by plain PyTorch and by vLLM."""


def figures_of(name: str) -> NodeFigures:
    """Of a kept run of ``node_check``: the best products and memory, the slowest copy, each collective's fit."""
    found: dict[str, list[float]] = {}
    curves: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for point in _points(name):
        for metric_name, metric in point["metrics"].items():
            found.setdefault(f"{point['benchmark']} {metric_name}", []).append(metric["value"])
        axes = point["axes"]
        if "message_bytes" in axes:
            curve = curves.setdefault((axes.get("operation", "all_reduce"), axes["gpus"]), [])
            curve.append((axes["message_bytes"], point["metrics"]["collective_s"]["value"]))
    return NodeFigures(
        matmul_flops_per_s=max(found["matmul matmul_flops_per_s"]),
        memory_bytes_per_s=max(found["memory memory_bytes_per_s"]),
        peer_bytes_per_s=min(found["peer_copy peer_copy_bytes_per_s"]),
        collectives={key: fit(curve) for key, curve in curves.items()},
    )


def measured_of(name: str, backend: str | None = None) -> dict[int, dict[str, float]]:
    """Each metric by the number of GPUs; of a file with several backends those of ``backend``."""
    return {
        point["num_gpus"]: {metric_name: metric["value"] for metric_name, metric in point["metrics"].items()}
        for point in _points(name)
        if backend is None or point["axes"]["backend"] == backend
    }


def generation_baseline(predicted: tuple[StepTime, StepTime], measured: dict[str, float], first_token: str) -> Baseline:
    """The baseline of a batch of which every sequence has its first token after the metric ``first_token``."""
    first, rounds = predicted
    prefill_s = measured[first_token]
    return Baseline(
        (
            BaselinePhase(predicted=first, measured_s=prefill_s, beyond_shrinks=True),
            BaselinePhase(predicted=rounds, measured_s=measured["step_s"] - prefill_s),
        )
    )


@cache
def _points(name: str) -> list[dict[str, Any]]:
    kept = json.loads((shipped_suites() / f"measured/{name}.json").read_text())
    return [point for point in kept["points"] if point["status"] == "ok"]
