"""The shipped generation suites: every profile plans on machines of its kind."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest

from pybench.files.suite.file import read_suite
from pybench.model.machine import Devices
from pybench.model.suite import Plan, Scaling
from tests.api import planned

SUITES = Path(__file__).parents[2] / "suites"
GENERATION = (
    "tp_scaling",
    "pp_scaling",
    "replica_scaling",
    "tp_vs_pp_energy",
    "serve_latency",
    "prefill_decode",
    "serving",
)
GPU_PROFILES = ("rtx4090", "a100", "h100", "h200", "b200")


@cache
def plan_of(name: str, profile: str, num_devices: int) -> Plan:
    """On a pretend machine of the profile's kind."""
    suite = read_suite(SUITES / f"{name}.toml", profile=None, machine_kind=profile)
    assert suite.profile == profile
    there = Devices("cpu" if profile == "cpu" else "cuda", num_devices)
    return planned(suite, there)


@pytest.mark.parametrize("name", GENERATION)
def test_a_cpu_runs_what_is_left_to_it(name: str) -> None:
    """Two cores are two devices, and no point asks for more, or for an engine."""
    plan = plan_of(name, "cpu", 2)
    assert plan.points
    assert plan.skips == ()
    assert {point.settings.backend for point in plan.points} <= {"torch", "transformers", "server"}


@pytest.mark.parametrize("profile", GPU_PROFILES)
@pytest.mark.parametrize("name", GENERATION)
def test_every_point_runs_on_eight_gpus(name: str, profile: str) -> None:
    """None is refused, whatever its backend, model and sizes."""
    plan = plan_of(name, profile, 8)
    assert plan.points
    assert plan.skips == ()


@pytest.mark.parametrize("profile", GPU_PROFILES)
@pytest.mark.parametrize("name", GENERATION)
def test_two_gpus_measure_every_point_of_eight_that_fits(name: str, profile: str) -> None:
    """Nothing more is planned, but where a model's heads limit what an axis may hold."""
    whole, plan = plan_of(name, profile, 8), plan_of(name, profile, 2)
    small = {point.id for point in whole.points if point.num_gpus <= 2 and not point.benchmark.startswith("rates_")}
    assert {point.id for point in plan.points if not point.benchmark.startswith("rates_")} == small
    limited = {"needs 4 GPUs, found 2"} if profile == "rtx4090" else set()
    assert {skip.reason for skip in plan.skips} <= limited


@pytest.mark.parametrize("name", GENERATION)
def test_every_scaling_expectation_has_its_baseline(name: str) -> None:
    """One GPU, in every profile: what is more is told against it."""
    for profile in ("cpu", *GPU_PROFILES):
        suite = read_suite(SUITES / f"{name}.toml", profile=None, machine_kind=profile)
        for benchmark in suite.benchmarks:
            for along in (e.along for e in benchmark.expectations if isinstance(e, Scaling)):
                assert 1 in benchmark.axes[along], f"{profile}: {benchmark.name}"


def test_every_shipped_table_is_used() -> None:
    """A table that no suite names judges nothing."""
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in SUITES.glob("*.toml")]
    named = {e["table"] for t in tables for b in t["benchmark"] for e in b.get("expect", []) if "table" in e}
    assert named == {path.stem for path in (SUITES / "expected").glob("*.toml")}
