"""``pybench fleet`` as a user runs it."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from tests.fleets import Fleet
from tests.nodes import Node

WHEN = datetime(2026, 11, 22, 8, tzinfo=UTC)


def fleet(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, ["fleet", *arguments])


def two_hosts_run(folder: Path, names: tuple[str, str], rate_bytes_per_s: float) -> None:
    node = Node(num_gpus=2)
    node.over_two_hosts(names)
    node.change_values(
        lambda *_: {"busbw_bytes_per_s": rate_bytes_per_s, "algbw_bytes_per_s": rate_bytes_per_s, "collective_s": 0.01}
    )
    node.write(folder, WHEN)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five nodes of two GPUs, of which node03 has memory that is 8 % slow."""
    folder = tmp_path_factory.mktemp("collected")
    for number in range(1, 6):
        node = Node(seed=number, num_gpus=2, host=f"{number}-")
        if number == 3:
            node.change_values(
                lambda workload, _, values: {k: v * (0.92 if workload == "memory" else 1) for k, v in values.items()}
            )
        node.write(folder / f"node{number:02}", WHEN)
    return folder


def test_the_slow_node_comes_first_with_its_evidence(collected: Path) -> None:
    """At 80 columns: the verdict, the node, the figure, what is healthy, the next step."""
    done = fleet("check", str(collected))
    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "node_check on 5 nodes: bad"
    assert lines[1] == "5 runs of 2 x NVIDIA H200, driver 580.1; smallest effect 1 %"
    assert "bad: node03" in lines
    assert any(line.startswith("  memory 8.") and "TB/s for 4." in line for line in lines)
    assert "healthy: node[01-02,04-05]" in lines
    assert lines[-1] == "verdict: bad - of 5 nodes: 1 bad, 4 healthy"
    assert max(map(len, lines)) <= 80


def test_the_drain_list_is_what_scontrol_takes(collected: Path, tmp_path: Path) -> None:
    """One command for each bad node and nothing else; the result as JSON beside it."""
    done = fleet("check", str(collected), "--drain-list", "--json", str(tmp_path / "found.json"))
    (line,) = done.stdout.splitlines()
    program, *words = shlex.split(line)
    assert (program, words[:3]) == ("scontrol", ["update", "NodeName=node03", "State=DRAIN"])
    assert words[3].startswith("Reason=pybench: memory 8.")
    found = json.loads((tmp_path / "found.json").read_text())
    assert {node["name"]: node["state"] for node in found["nodes"]}["node03"] == "bad"
    assert done.exit_code == 1


def test_a_healthy_fleet_drains_nothing(collected: Path) -> None:
    """Exit code 0. A node that is expected and has no run is not measured: exit code 1, and not on the list."""
    well = [str(collected / f"node{number:02}") for number in (1, 2, 4, 5)]
    done = fleet("check", *well)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "node_check on 4 nodes: healthy")
    absent = fleet("check", *well, "--nodes", "node01, node09", "--drain-list")
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert "not measured: node09: no run of it was given" in fleet("check", *well, "--nodes", "node09").stdout


def test_a_run_of_an_unknown_node_is_refused(collected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out, a slow node would be in no report. ``NODE=`` names it."""
    (run,) = (collected / "node03").iterdir()
    monkeypatch.chdir(run.parent)
    given = [str(collected / f"node{number:02}") for number in (1, 2, 4, 5)]
    refused = fleet("check", *given, run.name)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"pybench: {run.name}: its path names no node; give NODE={run.name}\n"
    assert "bad: node03" in fleet("check", *given, f"node03={run.name}").stdout


def test_two_nodes_are_not_decided(collected: Path) -> None:
    """Exit code 4 and what to do."""
    done = fleet("check", str(collected / "node01"), str(collected / "node02"))
    assert done.exit_code == 4
    assert "not compared: node[01-02]: 2 nodes of its kind; 3 can be compared" in done.stdout
    assert "next: three nodes of one kind can be compared" in done.stdout
    alone = fleet("check", str(collected / "node01"))
    assert "not compared: node01: 1 node of its kind; 3 can be compared" in alone.stdout


def test_pairs_alone_name_a_link(tmp_path: Path) -> None:
    """The command reads the runs of the rounds of ``fleet pairs``; nodes without runs are not compared."""
    for pair in Fleet(slow_links={("node01", "node15"): 0.06}).pairs(np.random.default_rng(1)):
        rate = float(np.median(pair.values))
        two_hosts_run(tmp_path / "-".join(pair.nodes) / "runs", pair.nodes, rate)
    done = fleet("check", str(tmp_path))
    assert done.exit_code == 4
    assert "suspect: link node01 - node15" in done.stdout
    assert "24 measurements of pairs" in done.stdout


def test_rounds_of_pairs() -> None:
    """Three unless others are wanted: a number and two names a line."""
    names = [f"n{number}" for number in range(1, 9)]
    done = fleet("pairs", *names)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["1"] * 4 + ["2"] * 4 + ["3"] * 4
    assert len(fleet("pairs", *names, "--all").stdout.splitlines()) == 28
    assert len(fleet("pairs", *names, "--rounds", "1").stdout.splitlines()) == 4


def test_pairs_that_have_met_are_left_out(tmp_path: Path) -> None:
    """By their runs: the others are printed, and nothing once all have met."""

    def met(*pairs: tuple[str, str]) -> list[str]:
        for pair in pairs:
            two_hosts_run(tmp_path / "-".join(pair), pair, 46e9)
        done = fleet("pairs", "a", "b", "c", "--met", str(tmp_path))
        assert done.exit_code == 0, done.stderr
        return [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()] or [done.stderr.strip()]

    assert sorted(met(("b", "a"))) == ["a c", "b c"]
    assert met(("c", "a"), ("b", "c")) == ["every pair of these nodes has met"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pairs", "a", "b", "--met", "absent"), "absent: no such file or folder"),
        (("check", "absent"), "absent: no such file or folder"),
        (("pairs", "a", "a"), "a: named twice; give each node once"),
        (("pairs", "a"), "1 node: a pair needs two"),
        (("pairs", "a", "b", "--rounds", "1", "--all"), "--all prints every round: leave out --rounds, or --all"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    """And exit code 2."""
    monkeypatch.chdir(tmp_path)
    done = fleet(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
