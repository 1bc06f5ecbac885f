"""Kept speedups against their prediction by a kept node check of the same kind and number of GPUs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from pybench.explain.measured_step import MeasuredStep
from pybench.explain.node import measured_node, node_rates
from pybench.explain.predict import refuse_launch_bound
from pybench.explain.step_time import UnmeasuredError
from pybench.files.shipped import load_models, shipped_suites
from pybench.model.suite import Effort, Point
from pybench.model.workloads.registry import SETTINGS_OF
from pybench.model.workloads.settings import ModelSettings
from pybench.model.workloads.train import Train

KEPT = shipped_suites() / "measured"
NODES = {
    "h100x2": "node_check-h100x2-20261125",
    "h100x4": "node_check-h100x4-20261126",
    "h200x2": "node_check-h200x2-20261124",
    "h200x4": "node_check-h200x4-20261126",
}


def _step(kept: dict[str, Any]) -> MeasuredStep:
    """A kept point with its measured step."""
    given = {name: value for name, value in kept["settings"].items() if name != "workload" and value is not None}
    kind = SETTINGS_OF[kept["settings"]["workload"]]
    names = {field.name for field in dataclasses.fields(kind)}
    settings = kind(**{name: value for name, value in given.items() if name in names})
    assert isinstance(settings, ModelSettings)
    values = {name: metric["value"] for name, metric in kept["metrics"].items()}
    return MeasuredStep(
        point=Point(
            id=kept["id"],
            benchmark=kept["benchmark"],
            axes=kept["axes"],
            settings=settings,
            effort=Effort(),
            architecture=load_models()[settings.model],
        ),
        step_s=values["step_s"],
        prefill_s=values.get("ttft_p99_s"),
        samples=settings.effective_batch_size
        if isinstance(settings, Train)
        else round(values["requests_per_s"] * values["step_s"]),
        gpus=(),
    )


def _errors() -> Iterator[tuple[str, float]]:
    """Each kept speedup that is predicted: the kind of work, and predicted over measured speedup minus one."""
    for machine, stem in NODES.items():
        node = measured_node(KEPT / f"{stem}.json")
        for path in sorted(KEPT.glob(f"*-{machine}-*.json")):
            run = json.loads(path.read_text())
            points = {point["id"]: point for point in run["points"] if (point["settings"] or {}).get("workload")}
            pairs = {(row["baseline_id"], row["point_id"]) for row in run["scaling"] if row["speedup"] is not None}
            for pair in sorted(pair for pair in pairs if set(pair) <= points.keys()):
                base, other = (_step(points[point_id]) for point_id in pair)
                rates = node_rates(node, other.settings.dtype)
                try:
                    refuse_launch_bound(rates, other.point, other.samples, base.samples_each)
                    predicted_s = base.as_baseline(base.predicted(rates)).calibrated_s(other.predicted(rates))
                except UnmeasuredError:
                    continue
                yield f"{path.stem} {other.point.id}", other.step_s / predicted_s - 1


def test_kept_speedups_are_predicted() -> None:
    """Half of them within 2 %, nine of ten within 5 %, all within 8 %: DDP, FSDP, LoRA, pipelines, vLLM, torch."""
    errors = dict(_errors())
    sizes = sorted(abs(error) for error in errors.values())
    assert len(sizes) >= 30
    assert median(sizes) < 0.02
    assert sizes[int(0.9 * len(sizes))] < 0.05
    assert errors == {name: pytest.approx(0.0, abs=0.08) for name in errors}
