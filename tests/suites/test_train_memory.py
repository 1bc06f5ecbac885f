"""Shipped training suites fit the cards their profiles are named after, by an estimate that kept runs confirm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import pytest

from pybench.core.memory import MemoryNeed, memory_need, memory_reasons
from pybench.core.plan import expand, with_words
from pybench.files.shipped import load_models
from pybench.files.suite.file import read_suite
from pybench.model.machine import Devices
from pybench.model.suite import Effort, Point
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.registry import SETTINGS_OF
from pybench.model.workloads.settings import AUTO
from pybench.model.workloads.train import Train
from tests.suites.test_train_suites import SUITES, TRAINING

CARD_BYTES = {"rtx4090": 24e9, "a100": 80e9, "h100": 80e9, "h200": 141e9}
TOO_LARGE = {"full"}
"""Of finetune_guide: what the plan refuses on every card here, as the suite states."""
BY_MEMORY = {"140gb": 140e9, "80gb": 80e9, "40gb": 40e9, "a100-40gb": 40e9, "16gb": 16e9}
PROFILED = (
    "ddp_scaling",
    "fsdp_scaling",
    "lora_scaling",
    "qlora",
    "sft_presets",
    "pipeline_scaling",
    "deepspeed_scaling",
    "train_strategies",
    "tensor_training_scaling",
)
"""Suites with profiles by memory, for cards without one of their own."""


def needed(point: Point, run_id: str | None = None) -> MemoryNeed:
    """By today's code; with ``run_id`` by that of the run: until 15:00 on 26 November 2026 each rank had all logits."""
    split = run_id is None or run_id >= "20261126T15"
    with nullcontext() if split else patch.object(Train, "splits_vocabulary", new=False):
        need = memory_need(point)
    assert need is not None
    return need


def needed_bytes(point: Point) -> float:
    return needed(point).num_bytes


def measured_settings(given: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """What of a training's settings differs in the measured steps of a run, whose id begins with its day and time.

    Peaks are without control steps. Until 25 November 2026 a pipeline had a microbatch for each stage by default. Until
    06:00 on 26 November its layers were cut evenly, as those of ``layer_split`` are, which has no microbatches by
    default.
    """
    changed: dict[str, Any] = {"control_steps": None}
    if given["strategy"] == "pipeline_parallel" and run_id < "20261126T06":
        by_default = given["pipeline_parallel"] if run_id < "20261126" else Train(**given).num_microbatches
        changed["microbatches"] = given["microbatches"] or by_default
        changed["strategy"] = "layer_split"
    return changed


def points(name: str, machine: str, num_gpus: int = 8) -> tuple[Point, ...]:
    suite = read_suite(SUITES / f"{name}.toml", profile=machine, machine_kind=machine)
    words = with_words(suite, num_devices=num_gpus)
    found = expand(words, load_models(), Devices("cuda", num_gpus)).points
    trainers = (replace(p, settings=p.settings.training) if isinstance(p.settings, Checkpoint) else p for p in found)
    return tuple(point for point in trainers if isinstance(point.settings, Train))


@pytest.mark.parametrize("machine", CARD_BYTES)
@pytest.mark.parametrize("name", [name for name in TRAINING if name != "evaluation_step"])
def test_every_profile_fits_its_card(name: str, machine: str) -> None:
    """Points that run out of memory on the very card they are meant for would be no sizes."""
    if (name, machine) == ("finetune_guide", "rtx4090"):
        pytest.skip("its model does not fit 24 GB: the plan refuses it by this estimate")
    planned = [point for point in points(name, machine) if point.benchmark not in TOO_LARGE]
    found = {point.id: round(needed_bytes(point) / 1e9, 1) for point in planned}
    assert found
    assert {id_: needed for id_, needed in found.items() if needed * 1e9 > CARD_BYTES[machine]} == {}


@pytest.mark.parametrize("machine", ["a100", "h100", "h200"])
def test_the_guides_full_training_is_refused_with_its_need(machine: str) -> None:
    """All weights of gpt-oss-20b by whole copies: 8 bytes each."""
    [full] = [point for point in points("finetune_guide", machine) if point.benchmark == "full"]
    assert "156 GiB a GPU" in str([*memory_reasons(full, Devices("cuda", 4, memory_bytes=CARD_BYTES[machine]))])


@pytest.mark.parametrize("profile", BY_MEMORY)
@pytest.mark.parametrize("name", PROFILED)
def test_profiles_by_memory_fit_it(name: str, profile: str) -> None:
    """Every point on eight cards."""
    found = {point.id: round(needed_bytes(point) / 1e9, 1) for point in points(name, profile)}
    assert found
    assert {id_: needed for id_, needed in found.items() if needed * 1e9 > BY_MEMORY[profile]} == {}


def _as_measured(given: dict[str, Any], metrics: dict[str, Any], run_id: str) -> dict[str, Any]:
    """What of a kept point's settings differs in its measured steps, also the batch that was found."""
    if "strategy" not in given:
        return {}
    changed = measured_settings(given, run_id)
    if given["batch_size_per_gpu"] == AUTO:
        changed["batch_size_per_gpu"] = int(metrics["batch_size_per_gpu"]["value"])
    return changed


def kept_needs() -> dict[str, tuple[MemoryNeed, float]]:
    """Estimate and measured peak of every kept point of training or evaluation whose settings are in its file."""
    shapes, found = load_models(), {}
    for path in sorted((SUITES / "measured").glob("*.json")):
        run = json.loads(path.read_text())
        for kept in run["points"]:
            given, peak = kept.get("settings") or {}, kept["metrics"].get("peak_memory_bytes")
            if peak is None or given.get("workload") not in {"train", "evaluate"} or given["model"] not in shapes:
                continue
            kind = SETTINGS_OF[given["workload"]]
            gone = given.keys() - {field.name for field in fields(kind)}
            if any(given[name] is not None for name in gone):
                continue  # measured with a setting that went
            given = {name: value for name, value in given.items() if name not in gone}
            settings = kind(**{**given, **_as_measured(given, kept["metrics"], run["run_id"])})
            shape = shapes[given["model"]]
            point = Point(id="p", benchmark="b", axes={}, settings=settings, effort=Effort(), architecture=shape)
            found[f"{path.stem} {kept['id']}"] = needed(point, run["run_id"]), peak["value"]
    return found


def test_every_kept_training_is_near_its_estimate() -> None:
    """Nine of ten kept trainings lie within 10 % of the estimate, all within 20 %."""
    shares = [need.num_bytes / peak for need, peak in kept_needs().values() if not need.is_least]
    assert len(shares) > 90
    assert sum(abs(share - 1) < 0.1 for share in shares) > 0.9 * len(shares)
    assert 0.8 < min(shares) <= max(shares) < 1.2


def test_no_kept_point_used_less_than_what_a_plan_refuses_by() -> None:
    """A point is left out only for bytes that every run of it needs."""
    found = {name: need.certain_bytes / peak for name, (need, peak) in kept_needs().items()}
    assert {name: share for name, share in found.items() if share > 1} == {}


def test_what_an_evaluation_at_least_needs_was_needed() -> None:
    """The loss makes all logits, so that nearly all is counted."""
    found = {name: need.num_bytes / peak for name, (need, peak) in kept_needs().items() if need.is_least}
    assert found
    assert max(found.values()) <= 1
    assert found["evaluation_step-h200x1-20261123 loss"] > 0.9
