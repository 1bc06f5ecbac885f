"""A training over two hosts whose ranks run in containers and meet on a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from tests.containers.boxed_engine import Boxed, write_training
from tests.run.two_hosts import TwoHosts, ended

pytestmark = pytest.mark.timeout(1200)  # another session may have the engines first
LIMIT_S = 600


def _losses_of_one_host(folder: Path) -> tuple[float, ...]:
    """Of the same training by this Python."""
    words = ["run", str(write_training(folder, 1)), "--runs", str(folder / "bare"), "--engine", "none"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 4, result.output
    (path,) = (folder / "bare").iterdir()
    (record,) = RunFolder.open(path).journal.records()
    return record.ranks[0].losses


@pytest.mark.parametrize("boxed", ["podman"], indirect=True)
def test_a_training_in_containers_of_two_hosts(boxed: Boxed, tmp_path: Path, no_driver: None) -> None:
    """Its loss is that of one host without containers; both parts ran in the locked image, and none is left."""
    two = TwoHosts(tmp_path, engine=("--engine", boxed.name, "--lock", str(boxed.lock)))
    for name in "ab":
        write_training(tmp_path / name, 2)
    with two.host("a") as a, two.host("b") as b:
        code, out = ended(a, LIMIT_S)
        assert (code, ended(b, LIMIT_S)[0]) == (4, 0), out
    (record,) = two.records()
    assert record.failure is None
    assert [(part.name, part.ranks) for part in record.hosts] == [("a", (0, 1)), ("b", (1, 1))]
    assert record.container is not None
    assert record.container.image_id == boxed.image_id
    assert [host.images for host in two.run.read_manifest().machines] == [(boxed.image_id,)] * 2
    assert boxed.containers() == []
    losses = record.ranks[0].losses
    assert len(losses) >= 3
    assert losses == pytest.approx(_losses_of_one_host(tmp_path), rel=1e-5)
