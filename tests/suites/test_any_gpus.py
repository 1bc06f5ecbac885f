"""Shipped suites plan what fits on a machine with any number of GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pybench.compute.axis_words import with_words
from pybench.compute.plan import expand
from pybench.store.model_shapes import load_models
from pybench.store.suite.file import read_suite

SUITES = sorted((Path(__file__).parents[2] / "suites").glob("*.toml"))
# What they compare takes two GPUs at least.
_TWO = {"tp_vs_pp_energy", "deepspeed_scaling", "lora_scaling", "fsdp_scaling", "pipeline_scaling", "node_check"}
_TWO |= {"replica_scaling"}


@pytest.mark.parametrize("num_gpus", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("path", SUITES, ids=[path.stem for path in SUITES])
def test_no_point_needs_more_gpus_than_there_are(path: Path, num_gpus: int) -> None:
    """On an H200 machine; where two are the least that a benchmark takes, one is too few."""
    suite = with_words(read_suite(path, profile=None, machine_kind="h200"), num_devices=num_gpus)
    hosts = 2 if path.stem == "fleet_check" else 1
    plan = expand(suite, load_models(), device="cuda", num_devices=num_gpus, num_hosts=hosts)
    needs = {match[0] for skip in plan.skips if (match := re.search(r"needs \d+ GPUs?", skip.reason))}
    least = {"needs 2 GPUs"} if num_gpus == 1 and path.stem in _TWO else set()
    # Two copies of two stages.
    assert needs <= least | ({"needs 4 GPUs"} if num_gpus < 4 and path.stem == "pipeline_scaling" else set())
    assert plan.points or num_gpus == 1
