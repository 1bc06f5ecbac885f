"""The model against a kept measurement: tensor-parallel generation on 1, 2 and 4 H200s.

Figures of the node: the rows of the shipped tables that were measured on such a machine.
"""

from __future__ import annotations

import json

import pytest

from pybench.compute.comm_model.alpha_beta import fit
from pybench.compute.comm_model.figures import NodeFigures
from pybench.compute.comm_model.generation import GenerationShape, generation_step, prefill_step
from pybench.compute.comm_model.step_time import calibrated_s
from pybench.store.expected_tables import read_table
from pybench.store.models import load_models
from pybench.store.shipped import shipped_suites

_LLAMA = load_models()["llama-3.1-8b"]
_BUS_FACTOR = {2: 1.0, 4: 1.5}


def _figures() -> NodeFigures:
    kernel = read_table(shipped_suites() / "expected/kernel.toml").rows
    collective = read_table(shipped_suites() / "expected/collective_busbw.toml").rows
    own = [row for row in kernel if row.machine == "h200"]
    curves: dict[int, list[tuple[float, float]]] = {2: [], 4: []}
    for row in collective:
        if row.machine == "h200" and row.kind == "measured":
            size = float(row.where["message_bytes"])
            curves[row.count].append((size, size * _BUS_FACTOR[row.count] / (row.value or 0)))
    return NodeFigures(
        matmul_flops_per_s=next(row.value or 0 for row in own if row.where.get("m") == 8192),
        memory_bytes_per_s=next(row.value or 0 for row in own if row.where.get("pattern") == "copy"),
        collectives={("all_reduce", count): fit(curve) for count, curve in curves.items()},
    )


def _measured() -> dict[int, dict[str, float]]:
    kept = json.loads((shipped_suites() / "measured/tp_scaling-h200x4-20261121.json").read_text())
    return {
        point["num_gpus"]: {name: metric["value"] for name, metric in point["metrics"].items()}
        for point in kept["points"]
        if point["status"] == "ok"
    }


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("metric", "step"), [("step_s", generation_step), ("ttft_s", prefill_step)])
def test_speedups_are_predicted_within_a_seventh(count: int, metric: str, step: object) -> None:
    """Of the whole step, and of the prefill alone."""
    assert callable(step)
    measured, figures = _measured(), _figures()
    shapes = {
        n: GenerationShape(samples=64, prompt_tokens=512, output_tokens=128, element_bytes=2, tensor_parallel=n)
        for n in (1, count)
    }
    base, shared = (step(figures, _LLAMA, shapes[n]) for n in (1, count))
    predicted = measured[1][metric] / calibrated_s(shared, base, measured[1][metric])
    found = measured[1][metric] / measured[count][metric]
    assert predicted == pytest.approx(found, rel=0.15)


def test_the_fits_follow_the_curves() -> None:
    """All-reduce from 1 MiB to 2 GiB."""
    for count in (2, 4):
        curve = _figures().collectives["all_reduce", count]
        assert curve.misfit_fraction < 0.15
        assert 5e-6 < curve.alpha_s < 50e-6
