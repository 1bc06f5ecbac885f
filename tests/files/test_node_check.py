"""The shipped node_check and quick_check: what they measure on each kind of machine, and how long that may take."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from pybench.core.absolute import absolute_row
from pybench.core.schedule import Attempt, sessions
from pybench.files.shipped import shipped_suites
from pybench.files.suite.expected_table import load_tables
from pybench.files.suite.file import read_suite
from pybench.machine.environment import snapshot
from pybench.model.machine import GpuInfo, Machine
from pybench.model.manifest import PlanOptions
from pybench.model.suite import FigureRow, Plan, Point, Skip, TableFigure, table_of
from pybench.model.workloads.node import Matmul
from pybench.run.suite_plan import plan_suite

_HERE = snapshot()
_PATH = shipped_suites() / "node_check.toml"
_QUICK = shipped_suites() / "quick_check.toml"
# Assumed: on 1 to 4 H200s a worker's start took 6 to 9 s, and 3.3 s where it was a fork.
_START_S, _FORK_S = 10.0, 4.0
# Steps are sized to fractions of a second, those of products to more than half a second; warm-up ends with the third
# steady one. An attempt of eight other steps took 0.35 s on two H200s.
_STEP_S = {"burn": 1.5, "matmul": 0.9, "memory_bandwidth": 0.35, "training_step": 0.5}
_OTHER_STEP_S = 0.05
_WARMUP_STEPS = 3


def _machine(kind: str, num_devices: int) -> Machine:
    """One of that kind with so many GPUs, or cores; the rest is this one's."""
    gpu = GpuInfo(**dict.fromkeys((field.name for field in dataclasses.fields(GpuInfo)), None))  # type: ignore[arg-type]
    gpus = () if kind == "cpu" else (gpu,) * num_devices
    return dataclasses.replace(_HERE, kind=kind, fabric="nvlink", gpus=gpus, cpu_cores=num_devices)


def _plan(kind: str, num_devices: int, max_gpus: int | None = None, suite: Path = _PATH) -> Plan:
    return plan_suite(suite, _machine(kind, num_devices), PlanOptions(max_gpus=max_gpus))[1]


def _seconds(session: Sequence[Attempt]) -> float:
    """The steps of one worker process's points."""
    points = [point for point, _ in session]
    steps = [point.effort.steps + min(_WARMUP_STEPS, point.effort.max_warmup_steps) for point in points]
    lengths_s = [_STEP_S.get(point.settings.workload, _OTHER_STEP_S) for point in points]
    return math.fsum(number * length_s for number, length_s in zip(steps, lengths_s, strict=True))


def _counts(entries: Sequence[Point | Skip]) -> dict[str, set[int]]:
    """GPU counts of each benchmark."""
    found: dict[str, set[int]] = {}
    for entry in entries:
        found.setdefault(entry.benchmark, set()).add(entry.num_gpus)
    return found


@pytest.mark.parametrize("profile", ["rtx4090", "a100", "h100", "h200", "b200"])
@pytest.mark.parametrize("num_gpus", [1, 2, 4, 8])
def test_a_quick_check_measures_every_gpu_in_three_processes(profile: str, num_gpus: int) -> None:
    """Its points share a process; those of links need two GPUs."""
    plan = _plan(profile, num_gpus, suite=_QUICK)
    on_each = {"matmul", "memory", "host_copy", "training_step"}
    assert _counts(plan.points) == {
        name: {num_gpus} for name in on_each | ({"peer_copy", "all_reduce"} if num_gpus > 1 else set())
    }
    assert len(list(sessions(plan.points))) == 3
    assert {point.effort.attempts for point in plan.points} == {2, 3}
    assert {point.effort.max_attempts for point in plan.points} == {4}


_ALONE = ("matmul", "matmul_narrow", "memory", "host_copy", "host_copy_at_once", "launch", "burn")
_TOGETHER = ("peer_copy", "gather_scatter", "other_collectives")


@pytest.mark.parametrize("profile", ["rtx4090", "a100", "h100", "h200", "b200"])
@pytest.mark.parametrize(("num_gpus", "reduced"), [(2, {2}), (3, {2, 3}), (4, {2, 4}), (6, {2, 4, 6}), (8, {2, 4, 8})])
def test_every_gpu_of_a_node_takes_part(profile: str, num_gpus: int, reduced: set[int]) -> None:
    """However many there are, in every benchmark; all-reduces run over fewer, too, for the model of step times."""
    plan = _plan(profile, num_gpus)
    assert plan.skips == ()
    assert _counts(plan.points) == {**{name: {num_gpus} for name in (*_ALONE, *_TOGETHER)}, "all_reduce": reduced}
    assert all(point.effort.attempts >= 2 for point in plan.points), "one attempt decides nothing"
    copies = [point for point in plan.points if "copy" in point.benchmark]
    assert {point.effort.attempts for point in copies} == {3}, "two left intervals such as 57 to 126 GB/s"


@pytest.mark.parametrize("profile", ["rtx4090", "a100", "h100", "h200", "b200"])
def test_one_gpu_has_no_links(profile: str) -> None:
    """Points of two GPUs are left out with a reason; the rest is measured."""
    plan = _plan(profile, 1)
    assert _counts(plan.points) == {name: {1} for name in _ALONE}
    assert _counts((*plan.skips, *plan.left_out)) == {"all_reduce": {2, 4}, **{name: {1} for name in _TOGETHER}}
    assert {skip.reason for skip in (*plan.skips, *plan.left_out)} == {
        "left out: 2 GPUs (1 here)",
        "left out: 4 GPUs (1 here)",
        "left out: needs at least 2 GPUs, found 1",
    }


def test_a_limit_of_the_users_own() -> None:
    """Two of four GPUs: what needs more is named as left out by that."""
    plan = _plan("h200", 4, max_gpus=2)
    assert plan.skips == ()
    assert {(skip.benchmark, skip.lacks) for skip in plan.left_out} == {("all_reduce", "4 GPUs (--max-gpus 2)")}
    assert {point.num_gpus for point in plan.points} == {2}


@pytest.mark.parametrize("num_cores", [2, 64])
def test_two_ranks_on_a_cpu(num_cores: int) -> None:
    """However many cores."""
    plan = _plan("cpu", num_cores)
    assert plan.skips == ()
    assert _counts(plan.points) == {name: {2} for name in (*_ALONE, *_TOGETHER, "all_reduce")}


@pytest.mark.parametrize(
    ("profile", "precision"),
    [("a100", "tfloat32"), ("h100", "float8_e4m3fn"), ("h200", "float8_e4m3fn"), ("b200", "float8_e4m3fn")],
)
def test_eight_gpus_keep_their_own_profile(profile: str, precision: str) -> None:
    """An A100 has no FP8 units."""
    matmuls = [point.settings for point in _plan(profile, 8).points if isinstance(point.settings, Matmul)]
    assert [settings.precision for settings in matmuls] == ["bfloat16", precision]


def _without_row(machine: str, num_gpus: int) -> set[str]:
    """Ids of planned points with a table that has no row for them."""
    suite = read_suite(_PATH, profile=None, machine_kind=machine)
    wanted = {b.name: e for b in suite.benchmarks for e in b.expectations}
    tables = load_tables(_PATH, ["kernel", "collective_busbw"])
    return {
        point.id.replace("backend=torch,", "")
        for point in _plan(machine, num_gpus).points
        if (asked := wanted.get(point.benchmark)) is not None
        and isinstance(asked, TableFigure)
        and absolute_row(tables[asked.table], point, asked.metric, _machine(machine, num_gpus)) is None
    }


_SMALLER = [f"all_gather,message_bytes={16 * 2**20}", f"reduce_scatter,message_bytes={16 * 2**20}"]


@pytest.mark.parametrize("num_gpus", [1, 2, 4, 8])
def test_h200_rows(num_gpus: int) -> None:
    """For all but these, of which no figure is known; of all-reduces on 8 GPUs the largest is."""
    unknown = {f"gather_scatter[gpus={num_gpus},operation={sent}]" for sent in _SMALLER}
    unknown |= {f"other_collectives[gpus={num_gpus},operation=broadcast]"}
    unknown |= {f"all_reduce[gpus=8,message_bytes={size * 2**20}]" for size in (1, 16) if num_gpus == 8}
    assert _without_row("h200", num_gpus) == (unknown if num_gpus > 1 else set())


@pytest.mark.parametrize(("num_gpus", "host_bound"), [(2, 58e9), (4, 72e9)])
def test_a_host_limited_loop_is_no_standard_for_links(num_gpus: int, host_bound: float) -> None:
    """The floors of small all-reduces lie above what calls queued one by one had on such a machine."""
    (row,) = (
        row
        for row in load_tables(_PATH, ["collective_busbw"])["collective_busbw"].rows
        if isinstance(row, FigureRow)
        and (row.machine, row.count, row.where.get("message_bytes")) == ("h200", num_gpus, 2**20)
    )
    floor, _ = row.limits
    assert floor is not None
    assert floor > host_bound


@pytest.mark.parametrize("machine", ["h100", "b200", "a100"])
@pytest.mark.parametrize("num_gpus", [1, 8])
def test_rows_of_each_gpu_hold_for_any_number(machine: str, num_gpus: int) -> None:
    """The matmul of the published shape is held against its row on 8 GPUs as on one."""
    assert f"matmul[gpus={num_gpus}]" not in _without_row(machine, num_gpus)


@pytest.mark.parametrize("suite", [_PATH, _QUICK], ids=["node_check", "quick_check"])
@pytest.mark.parametrize("profile", ["rtx4090", "a100", "h100", "h200", "b200"])
@pytest.mark.parametrize("num_gpus", [1, 2, 4])
def test_a_check_is_done_in_100_s(suite: Path, profile: str, num_gpus: int) -> None:
    """By assumed times of starts and steps, without more attempts for undecided verdicts."""
    made = [*sessions(_plan(profile, num_gpus, suite=suite).points)]
    assert _START_S + _FORK_S * (len(made) - 1) + math.fsum(map(_seconds, made)) <= 100


# FLOP/s that the product of each profile reaches at most; 0.5 s is beyond the onset of the power limit.
_FASTEST = {
    ("h100", "bfloat16"): 800e12,
    ("h200", "bfloat16"): 800e12,
    ("h200", "float8_e4m3fn"): 1600e12,
    ("h100", "float8_e4m3fn"): 1600e12,
    ("a100", "bfloat16"): 312e12,
}


@pytest.mark.parametrize(("profile", "precision"), _FASTEST)
def test_a_step_of_products_outlasts_the_onset_of_the_power_limit(profile: str, precision: str) -> None:
    """Half a second at the fastest rate known for the type."""
    (settings,) = (
        point.settings
        for point in _plan(profile, 1).points
        if isinstance(point.settings, Matmul) and point.settings.precision == precision
    )
    flops = 2 * settings.m * settings.n * settings.k * settings.products
    assert flops / _FASTEST[profile, precision] >= 0.5


def test_a_cpu_stays_quick() -> None:
    """Two attempts, and products whose step has a thousandth of a GPU's work."""
    points = _plan("cpu", 2).points
    assert {point.effort.attempts for point in points} == {2}
    products = [point.settings for point in points if isinstance(point.settings, Matmul)]
    assert all(2 * one.m * one.n * one.k * one.products < 1e9 for one in products)


def test_every_expectation_is_held_against_a_shipped_table() -> None:
    """By its absolute rows."""
    suite = read_suite(_PATH, profile=None, machine_kind="h200")
    expected = [e for benchmark in suite.benchmarks for e in benchmark.expectations]
    assert all(isinstance(e, TableFigure) for e in expected)
    assert {table_of(e) for e in expected} == {"kernel", "collective_busbw"}
    assert load_tables(_PATH, ["kernel", "collective_busbw"])
