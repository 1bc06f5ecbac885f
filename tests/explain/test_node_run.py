"""Search for a run of the node check in the folder of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pybench.explain.command import predictions_of_run
from pybench.explain.node import MeasuredNode, latest_node_run
from pybench.files.run.folder import RunFolder
from pybench.model.errors import RunFolderError
from tests.build import Build
from tests.builders import MANIFEST
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


def test_a_missing_node_run_names_the_command(tmp_path: Path) -> None:
    """Also if the other runs are of another machine."""
    alone = _written(tmp_path, 8)
    _written(tmp_path, 9)
    with pytest.raises(RunFolderError, match=r"no run of node_check on the machine of .*: pybench run node_check"):
        latest_node_run(alone, "another machine")


def test_an_earlier_run_predicts_before_the_runs_own_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build
) -> None:
    """A fault of today slows the run's own rates, too. They predict where no other run has any."""
    runs = Runs(build)
    used: list[str] = []

    def predicted(_steps: object, node: MeasuredNode) -> tuple[str, ...]:
        used.append(node.run_id)
        return ("a prediction",)

    monkeypatch.setattr("pybench.explain.predictions.predictions", predicted)
    monkeypatch.setattr("pybench.explain.measured_step.grouped", lambda _steps: [("base", "point")])
    earlier, own = (RunFolder.open(_written(tmp_path, hour)) for hour in (8, 9))
    assert predictions_of_run(own, own.read_manifest(), runs.node_measurements)
    alone = RunFolder.open(_written(tmp_path / "alone", 8))
    assert predictions_of_run(alone, runs.node, runs.node_measurements)
    assert used == [earlier.read_manifest().run_id, runs.node.run_id]
