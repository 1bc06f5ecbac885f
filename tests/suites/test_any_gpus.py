"""Shipped suites plan what fits on any number of GPUs of several kinds, and name all that they leave out."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import chain
from math import prod
from pathlib import Path

import pytest

from pybench.core.gpu_models import with_gpus
from pybench.core.judged_by import NOTHING, RATES, judged_by
from pybench.core.plan import expand, left_out_list, parse_filter, with_words
from pybench.explain.node import has_rates
from pybench.explain.predictions import band_of
from pybench.files.shipped import load_models
from pybench.files.suite.expected_table import load_tables
from pybench.files.suite.file import read_suite
from pybench.model.suite import Plan, Suite
from pybench.model.workloads.train import Train
from tests.api import planned
from tests.builders import MACHINE

SUITES = sorted((Path(__file__).parents[2] / "suites").glob("*.toml"))
JUDGED = [path for path in SUITES if path.stem != "fleet_check"]
"""The others' rows judge; ``pybench fleet check`` judges the pairs of nodes."""
NOT_MEASURED = {("pp_scaling", "b200"), ("replica_scaling", "b200")}
"""No such card has run an engine's copies or pipelines, and no band is known."""
KINDS = ("h100", "h200", "a100-40gb", "l40s", "rtx4090")
COUNTS = (1, 2, 3, 4, 6, 8)
# What they compare takes two GPUs at least.
_TWO = {"tp_vs_pp_energy", "deepspeed_scaling", "lora_scaling", "fsdp_scaling", "pipeline_scaling", "node_check"}
_TWO |= {"replica_scaling"}
ON_ONE = {"evaluation_step", "prefill_decode", "serve_latency"}
"""They measure one GPU, on a machine with any number."""
POWERS_OF_TWO = {"tp_scaling", "tensor_training_scaling", "turn_taking"}
"""They split every layer, and no model's heads can be split over three or six."""
LEAST = {
    ("pipeline_scaling", "a100-40gb"): 2,
    ("pipeline_scaling", "l40s"): 2,
    ("pipeline_scaling", "rtx4090"): 4,
    ("tensor_training_scaling", "a100-40gb"): 2,
    ("tensor_training_scaling", "l40s"): 2,
    ("tensor_training_scaling", "rtx4090"): 4,
    ("finetune_guide", "rtx4090"): 4,
}
"""GPUs that hold the smallest model which the suite can split, where one does not."""
TOO_FEW = {("turn_taking", "rtx4090", 2)}
"""What both GPUs would do together needs four cards of that memory."""
STRATEGIES = {
    "h100": (10, 11, 8, 11, 8, 11),
    "h200": (11, 11, 8, 11, 8, 11),
    "a100-40gb": (5, 8, 5, 8, 5, 8),
    "l40s": (5, 8, 5, 8, 5, 8),
    "rtx4090": (5, 5, 5, 8, 5, 8),  # two cards hold no 7B model with its states
}
"""Points of train_strategies on each number of GPUs."""


def planned_on(suite: Suite, kind: str, num_gpus: int) -> Plan:
    there = replace(with_gpus(MACHINE, kind, num_gpus).devices, num_hosts=2 if suite.name == "fleet_check" else 1)
    return planned(suite, there)


@cache
def read(path: Path, kind: str) -> Suite:
    machine = with_gpus(MACHINE, kind, 1)
    return read_suite(path, profile=None, machine_kind=machine.kind, gpu_memory_bytes=machine.gpu_memory_bytes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", SUITES, ids=[path.stem for path in SUITES])
def test_every_combination_is_a_point_or_has_a_reason(path: Path, kind: str) -> None:
    """On each number of GPUs; and where a suite splits samples or layers, some point uses all of them."""
    suite = read(path, kind)
    suite = replace(suite, benchmarks=tuple(each for each in suite.benchmarks if not each.gives_rates))
    least = LEAST.get((path.stem, kind), 2 if path.stem == "tp_vs_pp_energy" else 1)
    for num_gpus in COUNTS:
        plan = planned_on(suite, kind, num_gpus)
        words = with_words(suite, num_devices=num_gpus)
        there = [*plan.points, *plan.skips, *plan.left_out]
        assert len(there) == sum(prod(map(len, benchmark.axes.values())) for benchmark in words.benchmarks)
        assert all(skip.reason.strip() for skip in (*plan.skips, *plan.left_out))
        assert bool(plan.points) == (num_gpus >= least), num_gpus
        if plan.points and _fills(path.stem, num_gpus) and (path.stem, kind, num_gpus) not in TOO_FEW:
            assert max(point.num_gpus for point in plan.points) == num_gpus


def _fills(suite: str, num_gpus: int) -> bool:
    if suite in ON_ONE:
        return num_gpus == 1
    # Of two hosts, for which this is the number on each.
    return suite != "fleet_check" and (suite not in POWERS_OF_TWO or num_gpus in {1, 2, 4, 8})


@pytest.mark.parametrize("kind", KINDS)
def test_training_strategies_fill_any_number_of_gpus(kind: str) -> None:
    """Every way but those that split heads or tokens trains on three and six, all of them with the same batch."""
    suite = read(next(path for path in SUITES if path.stem == "train_strategies"), kind)
    plans = [planned_on(suite, kind, num_gpus) for num_gpus in COUNTS]
    assert tuple(len(plan.points) for plan in plans) == STRATEGIES[kind]
    for num_gpus, plan in zip(COUNTS, plans, strict=True):
        assert {point.num_gpus for point in plan.points} == {num_gpus}
        trainings = [point.settings for point in plan.points if isinstance(point.settings, Train)]
        (batch,) = {training.effective_batch_size for training in trainings}
        assert batch % num_gpus == 0


def test_what_does_not_fit_is_named_with_its_benchmark() -> None:
    """Of a report's list of what was left out a size alone would not show whose it is."""
    suite = read(next(path for path in SUITES if path.stem == "train_strategies"), "h100")
    (text,) = left_out_list(planned_on(suite, "h100", 1))
    assert text.startswith("zero: weights, gradients and optimizer states alone take 100 GiB a GPU, of 79.6 GiB")


@pytest.mark.parametrize("num_gpus", COUNTS)
@pytest.mark.parametrize("path", SUITES, ids=[path.stem for path in SUITES])
def test_no_point_needs_more_gpus_than_there_are(path: Path, num_gpus: int) -> None:
    """On an H200 machine; where two are the least that a benchmark takes, one is too few."""
    plan = planned_on(read(path, "h200"), "h200", num_gpus)
    needs = {match[0] for skip in plan.skips if (match := re.search(r"needs \d+ GPUs?", skip.reason))}
    least = {"needs 2 GPUs"} if num_gpus == 1 and path.stem in _TWO else set()
    # Two copies of two stages.
    assert needs <= least | ({"needs 4 GPUs"} if num_gpus < 4 and path.stem == "pipeline_scaling" else set())
    assert plan.points or num_gpus == 1


@pytest.mark.parametrize("num_gpus", [2, 4])
@pytest.mark.parametrize("kind", ["h100", "h200", "b200"])
@pytest.mark.parametrize("path", JUDGED, ids=[path.stem for path in JUDGED])
def test_each_suite_judges_points_on_two_and_four_gpus(path: Path, kind: str, num_gpus: int) -> None:
    """By a table, a comparison, neighbours, or predictions of a suite that measures the node's rates."""
    suite = read(path, kind)
    plan = planned_on(suite, kind, num_gpus)
    tables = load_tables(path, sorted(suite.tables))
    measures_rates = any(benchmark.gives_rates for benchmark in suite.benchmarks)
    judges = judged_by(
        suite,
        plan,
        tables,
        with_gpus(MACHINE, kind, num_gpus),
        lambda base, other: measures_rates and band_of(base, other) is not None,
    )
    judging = {*chain(*judges.values())} - {NOTHING, RATES}
    assert bool(judging) == ((path.stem, kind) not in NOT_MEASURED), judges


@pytest.mark.parametrize(("num_gpus", "counts"), [(1, set()), (2, {2}), (4, {2, 4}), (8, {2, 4, 8})])
def test_rates_are_measured_where_a_suite_has_speedups(num_gpus: int, counts: set[int]) -> None:
    """Collectives over as many GPUs as its points have; none on one GPU, nor on CPU cores."""
    (path,) = (path for path in SUITES if path.stem == "ddp_scaling")
    plan = planned_on(read(path, "h200"), "h200", num_gpus)
    rates = [point for point in plan.points if point.benchmark.startswith("rates_")]
    assert {point.num_gpus for point in rates} == counts
    assert has_rates(rates) == (num_gpus > 1)
    assert not any(each.gives_rates for each in read_suite(path, profile=None, machine_kind="cpu").benchmarks)


def test_k_keeps_the_rates_of_the_points_that_it_keeps() -> None:
    """They judge the speedups that are left, and go where none is."""
    (path,) = (path for path in SUITES if path.stem == "ddp_scaling")
    suite, there = with_words(read(path, "h200"), num_devices=2), with_gpus(MACHINE, "h200", 2).devices
    for word, expected in (("weak", {"weak", "rates"}), ("data_parallel=1", {"weak", "strong"})):
        plan = expand(suite, load_models(), there, keep=parse_filter(word))
        assert {point.benchmark.split("_")[0] for point in plan.points} == expected
