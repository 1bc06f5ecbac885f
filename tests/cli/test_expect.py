"""Tables from good runs, and runs explained by others."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.explain.values import Explanation
from pybench.files.suite.expected_table import read_table
from tests.nodes import Node

Drill = Callable[..., tuple[str, ...]]


@pytest.fixture
def folder(finished: Path) -> Path:
    """A finished run that passes: two ranks are twice as fast as one."""
    return finished


def test_a_good_runs_table_judges_the_next_run(here: Path, folder: Path, drill: Drill) -> None:
    """Written, read back, and put in the place of the old one."""
    arguments = drill(value=1.0)
    (here / "expected" / "drill.toml").unlink()
    done = CliRunner().invoke(main, ["expect", "--from", str(folder), "-o", "expected/drill.toml"])
    assert (done.exit_code, done.stdout) == (0, "expected/drill.toml: 1 row\n")
    (row,) = read_table(here / "expected" / "drill.toml").rows
    assert (row.machine, row.count) == ("cpu", 2)
    assert row.value == pytest.approx(2.0, rel=1e-3)
    assert folder.name in row.source
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0, again.output


def test_two_benchmarks_of_one_metric_have_rows_of_their_own(here: Path, drill: Drill) -> None:
    """A whole run is written: each row names what its benchmark sets, and the next run passes by the two."""
    arguments = drill()
    suite = here / "drill.toml"
    benchmark = suite.read_text().partition("[[benchmark]]\n")[2]
    wide = benchmark.replace('name = "decode"', 'name = "wide"').replace("batch_size = 1", "batch_size = 2")
    suite.write_text(f"{suite.read_text()}\n[[benchmark]]\n{wide}")
    assert CliRunner().invoke(main, arguments).exit_code == 0
    (run,) = (here / "runs").iterdir()
    (here / "expected" / "drill.toml").unlink()
    done = CliRunner().invoke(main, ["expect", "--from", str(run), "-o", "expected/drill.toml"])
    assert (done.exit_code, done.stdout) == (0, "expected/drill.toml: 2 rows\n")
    assert done.stderr == "2 rows provisional: 1 host; runs of 3 hosts make a population\n"
    rows = read_table(here / "expected" / "drill.toml").rows
    assert [(row.count, row.where) for row in rows] == [(2, {"batch_size": 1}), (2, {"batch_size": 2})]
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0, again.output
    assert "2 of 2 expectations judged" in again.output


def test_rows_that_the_run_does_not_give_are_kept(here: Path, folder: Path) -> None:
    """A file with such rows is refused in one line that names them; one with the same rows only is written again."""
    table = here / "expected" / "drill.toml"
    before = table.read_bytes()
    expect = ["expect", "--from", str(folder), "-o"]
    done = CliRunner().invoke(main, [*expect, "expected/drill.toml"])
    assert done.exit_code == 2
    assert "holds 1 row that this run does not give" in done.stderr
    assert "output_tokens_per_s of generate, machine any, count 2" in done.stderr
    assert "give -o another FILE" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert table.read_bytes() == before
    for _ in range(2):
        assert CliRunner().invoke(main, [*expect, "mine.toml"]).exit_code == 0
    assert [path.name for path in here.iterdir() if "mine" in path.name] == ["mine.toml"]


def test_without_a_file_the_table_is_printed(folder: Path, tmp_path: Path) -> None:
    """The same text, named for the table."""
    done = CliRunner().invoke(main, ["expect", "--from", str(folder), "--table", "drill"])
    assert done.exit_code == 0
    (tmp_path / "drill.toml").write_text(done.stdout)
    assert read_table(tmp_path / "drill.toml").name == "drill"


def test_a_run_that_failed_is_no_example(here: Path, drill: Drill) -> None:
    """It is refused with its reason, and nothing is written."""
    assert CliRunner().invoke(main, drill(value=4.0)).exit_code == 1
    (run,) = (here / "runs").iterdir()
    done = CliRunner().invoke(main, ["expect", "--from", str(run), "-o", "mine.toml"])
    assert done.exit_code == 2
    assert "its verdict is fail" in done.stderr
    assert not (here / "mine.toml").exists()


def test_explaining_needs_a_nodes_run(folder: Path) -> None:
    """A run that measured no matmul explains nothing, by its folder or by its results."""
    for node in (folder, folder / "results.json"):
        done = CliRunner().invoke(main, ["explain", str(folder), "--node", str(node)])
        assert done.exit_code == 2
        assert "it measured no rates of a node; give a run of node_check on cpu" in done.stderr


@pytest.mark.parametrize("runs", ["runs", "my runs"])
def test_explaining_looks_for_a_nodes_run_beside_the_run(folder: Path, runs: str) -> None:
    """There is none: the command that makes it is named, in one line."""
    folder = folder.parent.rename(folder.parent.with_name(runs)) / folder.name
    done = CliRunner().invoke(main, ["explain", str(folder)])
    assert done.exit_code == 2
    quoted = shlex.quote(str(folder.resolve().parent))
    assert f"make one with: pybench run node_check --runs {quoted}, or name one with --node" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", [(), ("--node", "OTHER")])
def test_a_node_check_has_nothing_to_explain(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Also beside another one: the command that uses it is named."""
    runs = tmp_path / "my runs"
    run, other = (Node(num_gpus=2).write(runs, datetime(2026, 11, 24, hour, tzinfo=UTC)) for hour in (8, 9))
    done = CliRunner().invoke(main, ["explain", str(run), *(str(other) if o == "OTHER" else o for o in options)])
    assert (done.exit_code, done.stderr) == (
        2,
        f"pybench: {run}: a node check itself; give a run with speedups: pybench explain OTHER --node '{run}'\n",
    )


def test_an_explanation_is_as_wide_as_the_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In characters that it has, as every report."""
    found = Explanation(run_id="run", node_run_id="node", points=(), notes=("24 µs of a launch",) * 2)
    monkeypatch.setattr("pybench.explain.explanation.explanation_of", lambda *_: found)
    monkeypatch.setenv("COLUMNS", "18")
    done = CliRunner(charset="ascii").invoke(main, ["explain", str(folder)])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:] == ["  24 us of a", "    launch"]
