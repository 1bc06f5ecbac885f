"""Search for a run of the node check in the folder of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pybench.explain.node import latest_node_run
from pybench.model.errors import RunFolderError
from tests.builders import MANIFEST
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
