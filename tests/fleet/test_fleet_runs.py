"""Runs of nodes from collected folders, and what nodes measured together from files."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pybench.fleet.runs import read_fleet
from pybench.model.errors import RunFolderError
from pybench.model.figures import FigureKey
from tests.builders import RESULTS
from tests.golden_sentences import sentences_of
from tests.nodes import Node

SENTENCES = sentences_of("fleet.fleet_runs")

WHEN = datetime(2026, 11, 22, 8, tzinfo=UTC)


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    """node01 as a run's folder, node02 as its results below ``runs``, node03 as a file."""
    folder = tmp_path / "collected"
    Node(host="one", num_gpus=2).write(folder / "node01", WHEN)
    (folder / "node02" / "runs" / "20261122T080000Z-node_check").mkdir(parents=True)
    text = json.dumps(asdict(RESULTS))
    (folder / "node02" / "runs" / "20261122T080000Z-node_check" / "results.json").write_text(text)
    (folder / "node03.json").write_text(text)
    return folder


def test_the_path_names_the_node(collected: Path) -> None:
    """Its last part that is no run's name; NODE= in front of a path names another."""
    found = read_fleet([str(collected)])
    assert ([run.node for run in found.runs], found.notes) == (["node01", "node02", "node03"], ())
    assert found.nameless == ()
    assert [run.node for run in read_fleet([f"other={collected / 'node03.json'}"]).runs] == ["other"]
    (run,) = (collected / "node01").iterdir()
    assert [one.node for one in read_fleet([str(run)]).runs] == ["node01"]


def test_a_folder_has_the_figures_of_each_gpu(collected: Path) -> None:
    """Attempts' medians by UUID; results alone do not have them. Keys name no UUID."""
    first, second, _ = read_fleet([str(collected)]).runs
    assert first.uuids == ("GPU-one0", "GPU-one1")
    own = next(units for row, units in first.gpus.items() if row.metric == "memory_bytes_per_s")
    assert {uuid: len(values) for uuid, values in own.items()} == {"GPU-one0": 2, "GPU-one1": 2}
    assert {row.metric for row in first.gpus} == {
        "matmul_flops_per_s", "memory_bytes_per_s", "host_copy_bytes_per_s", "burn_flops_per_s",
    }  # fmt: skip
    assert isinstance(next(iter(first.gpus)), FigureKey)
    assert json.loads(first.figures.keys["gpu"]) == ["NVIDIA H200", "NVIDIA H200"]
    assert second.gpus == {}


def test_a_run_over_two_hosts_is_a_pair(tmp_path: Path) -> None:
    """By the hosts of its records; its path names no node. A run over hosts without such a point is refused."""
    node = Node(num_gpus=2)
    node.over_two_hosts(("node02", "node01"))
    found = read_fleet([str(node.write(tmp_path / "runs", WHEN))])
    assert found.runs == ()
    (pair,) = found.pairs
    assert (pair.nodes, pair.values) == (("node01", "node02"), (46e9, 46e9))
    assert pair.kind == ("busbw_bytes_per_s", "all_reduce", 2**29, None)
    node.records = []
    with pytest.raises(RunFolderError, match="a run over several hosts without a point on two"):
        read_fleet([str(node.write(tmp_path / "runs", WHEN))])


def test_a_run_over_two_hosts_counts_once(tmp_path: Path) -> None:
    """By two paths, or as a copy, with a note. Another pair's run of that second has the same id."""
    for names, room in (("node01", "node02"), "a"), (("node03", "node04"), "b"):
        node = Node(num_gpus=2)
        node.over_two_hosts(names)
        run = node.write(tmp_path / room, WHEN)
    shutil.copytree(run, tmp_path / "copy" / run.name)
    found = read_fleet([str(tmp_path), str(run)])
    assert [pair.nodes for pair in found.pairs] == [("node01", "node02"), ("node03", "node04")]
    assert found.notes == (f"pairs: run {run.name} was given twice; it counts once",) * 2
    assert read_fleet([str(tmp_path / "a"), str(tmp_path / "b")]).notes == ()


def test_each_rail_is_a_pair_of_its_own(tmp_path: Path) -> None:
    """By the slower of its two GPUs: the second GPU of either node is its end of rail 1."""
    node = Node(num_gpus=4)
    node.rails_of_two_hosts(("node01", "node02"), (40e9, 41e9), (39e9, 20e9))
    pairs = read_fleet([str(node.write(tmp_path / "runs", WHEN))]).pairs
    assert [(pair.rail, pair.values) for pair in pairs] == [(0, (40e9, 40e9)), (1, (20e9, 20e9))]
    assert len({pair.kind for pair in pairs}) == 2


def test_failed_checks_of_the_run_are_its_faults(tmp_path: Path) -> None:
    """Each once, however many points show it; corrected memory errors are a warning."""
    node = Node(num_gpus=4)
    node.change_conditions(1, temperature_c=95.0)
    node.change_counters(2, ecc_corrected=9)
    (run,) = read_fleet([str(node.write(tmp_path / "n1", WHEN))]).runs
    assert [text.partition(": ")[0] for text in run.faults] == ["GPU 1 (GPU-1)"]
    assert run.faults[0].endswith(", at 2 points")
    assert run.warnings == (SENTENCES["failed_checks_of_the_run_are_its"],)


def test_what_cannot_be_read_is_named_and_loses_nothing(collected: Path) -> None:
    """A cut file; links are not followed."""
    (collected / "node04.json").write_text('{"run_id": ')
    (collected / "node05.json").symlink_to(collected / "node03.json")
    found = read_fleet([str(collected)])
    assert [run.node for run in found.runs] == ["node01", "node02", "node03"]
    assert [*found.unreadable] == ["node04"]
    assert found.unreadable["node04"].startswith(f"{collected / 'node04.json'}: ")
    assert (found.nameless, found.notes) == ((), ())


def test_an_unreadable_run_that_no_state_names_is_noted(collected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair's run has no node in its path; of two unreadable runs of one node its state has the first."""
    monkeypatch.chdir(collected)
    for name in ("runs/20261122T081500Z-fleet_check", "node04/20261122T081500Z-a", "node04/20261122T081500Z-b"):
        Path(name).mkdir(parents=True)
    found = read_fleet(["node01", "node04", "runs"])
    why = "no manifest.json in this run's folder"
    assert found.unreadable == {"node04": f"node04/20261122T081500Z-a: {why}"}
    assert found.notes == (
        f"not read: node04/20261122T081500Z-b: {why}",
        f"not read: runs/20261122T081500Z-fleet_check: {why}",
    )


def test_a_runs_folder_without_a_run_loses_no_node(collected: Path) -> None:
    """It is empty, or has attempts and no manifest: its node is named with the reason. A collection may be named so."""
    (collected / "node04" / "20261122T081500Z-node_check").mkdir(parents=True)
    (collected / "node05" / "runs" / "20261122T081500Z-node_check" / "attempts").mkdir(parents=True)
    (collected / "node06").mkdir()
    whole = collected.rename(collected.with_name("20261122T090000Z-collected"))
    found = read_fleet([str(whole)])
    assert [run.node for run in found.runs] == ["node01", "node02", "node03"]
    assert [*found.unreadable] == ["node04", "node05"]
    assert found.unreadable["node04"] == (
        f"{whole}/node04/20261122T081500Z-node_check: no manifest.json in this run's folder"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "no such file or folder; give a run"),
        (lambda path: path.mkdir(), "no run in it; give a run"),
        (lambda path: path.write_text("[]"), "not a results.json"),
    ],
)
def test_a_path_without_any_run(tmp_path: Path, make: object, message: str) -> None:
    """One line, with what to give instead."""
    make(tmp_path / "x.json")  # type: ignore[operator]
    with pytest.raises(RunFolderError, match=message) as caught:
        read_fleet([str(tmp_path / "x.json")])
    assert len(str(caught.value).splitlines()) == 1


def test_a_path_that_names_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ``runs`` nor a run's name does."""
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/results.json").write_text(json.dumps(asdict(RESULTS)))
    with pytest.raises(RunFolderError, match=r"its path names no node; give NODE=runs/results\.json"):
        read_fleet(["runs"])
    assert read_fleet(["node7=runs"]).runs[0].node == "node7"
    Path("node8.json").write_text(json.dumps(asdict(RESULTS)))
    found = read_fleet(["node8.json", "runs"])
    assert [run.node for run in found.runs] == ["node8"]
    with pytest.raises(RunFolderError, match=r"^runs/results\.json: its path names no node; give NODE=runs/results\.j"):
        found.require_names()


def test_a_name_that_no_scheduler_takes_is_refused(tmp_path: Path) -> None:
    """It would stand on a command line."""
    (tmp_path / "a;reboot.json").write_text(json.dumps(asdict(replace(RESULTS, run_id="a"))))
    with pytest.raises(RunFolderError, match="names no node"):
        read_fleet([str(tmp_path / "a;reboot.json")])
