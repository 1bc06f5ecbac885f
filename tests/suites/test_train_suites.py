"""The shipped training suites: each profile plans on its machine, and has the tables that judge it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TypeGuard

import pytest

from pybench.core.absolute import absolute_row
from pybench.core.plan import expand, with_words
from pybench.files.shipped import load_models
from pybench.files.suite.expected_table import load_tables
from pybench.files.suite.file import read_suite
from pybench.model.machine import Devices
from pybench.model.suite import Comparison, Expectation, table_of
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.train import Train
from tests.api import planned
from tests.builders import MACHINE

SUITES = Path(__file__).parents[2] / "suites"
TRAINING = (
    *(
        "ddp_scaling",
        "fsdp_scaling",
        "lora_scaling",
        "qlora",
        "sft_presets",
        "pipeline_scaling",
        "deepspeed_scaling",
        "train_strategies",
        "tensor_training_scaling",
        "finetune_guide",
        "unsloth_scaling",
    ),
    "evaluation_step",
    "checkpoint",
)
PROFILES = ("cpu", "rtx4090", "a100", "h100", "h200")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", TRAINING)
def test_every_profile_plans_on_its_machine(name: str, profile: str) -> None:
    """Two cores, or eight GPUs: some points run, and only an option that needs a GPU is left out on a CPU."""
    if (name, profile) == ("finetune_guide", "rtx4090"):
        pytest.skip("its model does not fit 24 GB")
    suite = read_suite(SUITES / f"{name}.toml", profile=profile, machine_kind="cpu")
    there = Devices("cpu", 2) if profile == "cpu" else Devices("cuda", 8)
    plan = planned(suite, there)
    assert plan.points
    allowed = ("offload_optimizer needs GPUs", "needs 4 CPU cores, found 2") if profile == "cpu" else ()
    assert {skip.reason for skip in plan.skips} <= set(allowed)


@pytest.mark.parametrize("name", TRAINING)
def test_every_table_is_there(name: str) -> None:
    """And has rows for the metric that is judged."""
    suite = read_suite(SUITES / f"{name}.toml", profile=None, machine_kind="cpu")
    judged = [(b.workload, e) for b in suite.benchmarks for e in b.expectations if table_of(e)]
    loaded = load_tables(SUITES / f"{name}.toml", sorted({str(table_of(e)) for _, e in judged}))
    for workload, expectation in judged:
        rows = loaded[str(table_of(expectation))].rows
        assert any((row.workload, row.metric) == (workload, expectation.metric) for row in rows)


@pytest.mark.parametrize(
    ("machine", "num_gpus", "tokens_per_s"),
    [
        ("rtx4090", 2, 1200.0),
        ("h100", 2, 800.0),
        ("h200", 4, 600.0),
    ],
)
def test_presets_have_the_guides_claims(machine: str, num_gpus: int, tokens_per_s: float) -> None:
    """Each for the one point of its machine that has its model and batch; a claim is shown and judges nothing."""
    suite = read_suite(SUITES / "sft_presets.toml", profile=machine, machine_kind=machine)
    suite = with_words(suite, num_devices=num_gpus)
    points = expand(suite, load_models(), Devices("cuda", num_gpus)).points
    table = load_tables(SUITES / "sft_presets.toml", ["sft_presets"])["sft_presets"]
    here = dataclasses.replace(MACHINE, kind=machine, fabric="none")
    assert not any(absolute_row(table, point, "tokens_per_s", here) for point in points)
    for metric in ("tokens_per_s", "peak_memory_bytes"):
        rows = [(point, absolute_row(table, point, metric, here, claims=True)) for point in points]
        [(point, row)] = [(point, row) for point, row in rows if row is not None and point.benchmark == "preset"]
        assert metric == "peak_memory_bytes" or row.value == tokens_per_s
        assert point.num_gpus == num_gpus


@pytest.mark.parametrize("profile", PROFILES)
def test_both_ways_of_evaluating_see_the_same_samples(profile: str) -> None:
    """One order is judged, and the guide's factor of 300 is a claim."""
    suite = read_suite(SUITES / "evaluation_step.toml", profile=profile, machine_kind="cpu")
    points = planned(suite, Devices("cuda", 1)).points
    evaluated = [point for point in points if isinstance(point.settings, Evaluate)]
    assert [point.axes for point in evaluated if point.benchmark == "library"] == [{"beams": 1}, {"beams": 4}]
    loss, generation = (point for point in evaluated if point.settings.backend == "torch")
    assert isinstance(loss.settings, Evaluate)
    assert dataclasses.replace(loss.settings, method="generation") == generation.settings
    judged, claimed = (e for benchmark in suite.benchmarks if benchmark.name == "loss" for e in benchmark.expectations)
    assert judged == Comparison(metric="samples_per_s", order="above", other="generation")
    assert isinstance(claimed, Comparison)
    assert (claimed.order, claimed.other, claimed.factor) == ("above", "generation", 300.0)
    assert claimed.claim
    assert "300" in suite.description


@pytest.mark.parametrize(("name", "other"), [("train_strategies", "copies"), ("finetune_guide", "sharded")])
def test_adapters_are_claimed_to_be_twice_as_fast_at_the_same_work(name: str, other: str) -> None:
    """On as many GPUs as training all weights, with the same model, samples and tokens."""
    suite = read_suite(SUITES / f"{name}.toml", profile="h200", machine_kind="h200")
    (claim,) = (e for b in suite.benchmarks if b.name == "adapters" for e in b.expectations if _is_claimed(e))
    assert (claim.metric, claim.order, claim.other, claim.factor) == ("tokens_per_s", "above", other, 2.0)
    points = planned(suite, Devices("cuda", 4)).points
    work = {
        benchmark: {(p.settings.model, p.num_gpus, p.settings.effective_batch_size, p.settings.sequence_tokens)}
        for benchmark in ("adapters", other)
        for p in points
        if p.benchmark == benchmark and p.num_gpus == 4 and isinstance(p.settings, Train)
    }
    assert len(work) == 2
    assert work["adapters"] == work[other]


def _is_claimed(expectation: Expectation) -> TypeGuard[Comparison]:
    return isinstance(expectation, Comparison) and expectation.claim is not None
