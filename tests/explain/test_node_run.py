"""Search for a run of the node check in the folder of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pybench.core.gpu_models import with_gpus
from pybench.explain.command import predictions_of_run
from pybench.explain.node import MeasuredNode, latest_node_run, run_with_rates
from pybench.files.run.folder import RunFolder
from pybench.model.errors import RunFolderError
from pybench.model.suite import Point
from pybench.model.workloads.node import Matmul
from pybench.run.suite_plan import plan_suite
from tests.build import Build
from tests.builders import MACHINE, MANIFEST
from tests.explain.conftest import Runs
from tests.nodes import Node


def _written(root: Path, hour: int) -> Path:
    return Node(num_gpus=2).write(root, datetime(2026, 11, 24, hour, tzinfo=UTC))


def test_the_latest_of_the_same_machine_is_taken(tmp_path: Path) -> None:
    """A damaged folder and the run itself are skipped."""
    first, second, third = (_written(tmp_path, hour) for hour in (8, 9, 10))
    (tmp_path / "20261124T230000Z-node_check").mkdir()
    assert latest_node_run(first, MANIFEST.fingerprint) == third
    assert latest_node_run(third, MANIFEST.fingerprint) == second


def test_an_interrupted_run_is_passed_over(tmp_path: Path) -> None:
    """Its plan has rates, its journal none."""
    first, second, third = (_written(tmp_path, hour) for hour in (8, 9, 10))
    (third / "journal.jsonl").write_bytes(b"")
    assert latest_node_run(first, MANIFEST.fingerprint) == second


def test_a_missing_node_run_names_the_command(tmp_path: Path) -> None:
    """Also if the other runs are of another machine."""
    alone = _written(tmp_path, 8)
    _written(tmp_path, 9)
    with pytest.raises(RunFolderError, match=r"no run of node_check on the machine of .*: pybench run node_check"):
        latest_node_run(alone, "another machine")


def test_the_run_that_the_plan_names_predicts_else_the_runs_own_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build
) -> None:
    """A plan without rates of its own takes the latest; none predicts where the named run is gone."""
    runs = Runs(build)
    used: list[str] = []

    def predicted(_steps: object, node: MeasuredNode) -> tuple[str, ...]:
        used.append(node.run_id)
        return ("a prediction",)

    monkeypatch.setattr("pybench.explain.predictions.predictions", predicted)
    monkeypatch.setattr("pybench.explain.measured_step.groups_of", lambda _steps: [("base", "point")])
    first, second, own = (RunFolder.open(_written(tmp_path, hour)) for hour in (8, 9, 10))
    names = [folder.read_manifest().run_id for folder in (first, second)]
    without = runs.manifest((), fingerprint=MANIFEST.fingerprint)
    for manifest in (runs.node, without, replace(without, plan=replace(without.plan, rates_run=names[0]))):
        assert predictions_of_run(own, manifest, runs.node_measurements)
    assert used == [runs.node.run_id, names[1], names[0]]
    gone = replace(without, plan=replace(without.plan, rates_run="20261124T070000Z-node_check"))
    assert predictions_of_run(own, gone, runs.node_measurements) == ()


def test_rates_that_an_earlier_run_measured_are_not_measured_again(tmp_path: Path, build: Build) -> None:
    """On as many GPUs, of this machine; the latest run counts."""
    runs = Runs(build)
    _written(tmp_path, 8)
    latest = _written(tmp_path, 9)
    rates = RunFolder.open(latest).read_manifest().plan.points
    assert run_with_rates(tmp_path, MANIFEST.fingerprint, rates) == latest.name
    assert run_with_rates(tmp_path, "another machine", rates) is None
    runs.add(Matmul(backend="torch", gpus=4), {"matmul_flops_per_s": 660e12})
    assert run_with_rates(tmp_path, MANIFEST.fingerprint, runs.node_points) is None


def test_a_suite_leaves_its_rates_to_an_earlier_run(tmp_path: Path) -> None:
    """The plan names the run; all other points stay."""
    machine = with_gpus(MACHINE, "h200", 2)
    asked: list[str] = []

    def earlier(_root: Path, _fingerprint: str, points: Sequence[Point]) -> str:
        asked.extend(point.benchmark for point in points)
        return "earlier"

    _, plan = plan_suite(Path("ddp_scaling"), machine, root=tmp_path, earlier_rates=earlier)
    _, whole = plan_suite(Path("ddp_scaling"), machine, root=tmp_path)
    assert (plan.rates_run, whole.rates_run) == ("earlier", None)
    assert plan.points == tuple(point for point in whole.points if not point.benchmark.startswith("rates_"))
    gone = [point.benchmark for point in whole.points if point not in plan.points]
    assert gone == asked
    assert {name.partition("_")[0] for name in gone} == {"rates"}
