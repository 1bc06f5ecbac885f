"""The shipped node_check: what it measures on each kind of machine, and how long that may take."""

from __future__ import annotations

import pytest

from pybench.compute.plan import expand
from pybench.model.suite import Plan, Point
from pybench.model.workloads.burn import Burn
from pybench.store.expected_tables import load_tables
from pybench.store.models import load_models
from pybench.store.shipped import shipped_suites
from pybench.store.suite_file import read_suite

_PATH = shipped_suites() / "node_check.toml"
_LIMIT_S = 600
# Assumed: a worker's start took 13 to 16 s on H200s with an 8B model to build; here nothing is built.
_START_S = 11.0
# Steps other than burn's are sized to fractions of a second; warm-up ends with the third steady one.
_STEP_S = 0.1
_WARMUP_STEPS = 3


def _plan(profile: str, num_devices: int) -> Plan:
    suite = read_suite(_PATH, profile=profile, machine_kind=profile)
    device = "cpu" if profile == "cpu" else "cuda"
    return expand(suite, load_models(), device=device, num_devices=num_devices)  # type: ignore[arg-type]


def _seconds(point: Point) -> float:
    step_s = point.settings.burn_s if isinstance(point.settings, Burn) else _STEP_S
    return point.effort.attempts * (_START_S + step_s * (point.effort.steps + _WARMUP_STEPS))


@pytest.mark.parametrize(
    ("profile", "num_devices"),
    [("cpu", 2), ("rtx4090", 2), ("a100", 4), ("h100", 4), ("h200", 4), ("b200", 4), ("eight", 8)],
)
def test_every_point_can_run(profile: str, num_devices: int) -> None:
    """On as many GPUs as the profile is for, and each workload is in."""
    plan = _plan(profile, num_devices)
    assert plan.skips == ()
    assert {point.settings.workload for point in plan.points} == {
        *("matmul", "memory_bandwidth", "host_device_copy", "peer_copy", "collective", "launch_latency", "burn")
    }
    assert all(point.effort.attempts >= 2 for point in plan.points), "one attempt decides nothing"


@pytest.mark.parametrize("profile", ["rtx4090", "a100", "h100", "h200", "b200"])
def test_four_gpus_are_done_in_ten_minutes(profile: str) -> None:
    """By what starts and steps are assumed to take; more attempts, where a verdict is undecided, come on top."""
    assert sum(map(_seconds, _plan(profile, 4).points)) <= _LIMIT_S


def test_every_expectation_is_held_against_a_shipped_table() -> None:
    """By its absolute rows."""
    suite = read_suite(_PATH, profile=None, machine_kind="h200")
    expected = [e for benchmark in suite.benchmarks for e in benchmark.expectations]
    assert {e.table for e in expected} == {"kernel", "collective_busbw"}
    assert all(e.along is None for e in expected)
    assert load_tables(_PATH, ["kernel", "collective_busbw"])
