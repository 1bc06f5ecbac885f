"""Exports by the command line: pytest-benchmark's own command on its format, and a file that is replaced whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main

MEASURED = Path(__file__).parents[2] / "suites" / "measured"


def test_pytest_benchmark_compares_two_exports(finished: Path, here: Path) -> None:
    """pytest-benchmark reads both files and shows both points, with one round for each attempt."""
    for name in ("0001_a.json", "0002_b.json"):
        done = CliRunner().invoke(main, ("report", str(finished), "--format", "pytest-benchmark", "-o", name))
        assert done.exit_code == 0, done.output
    command = [str(Path(sys.executable).with_name("pytest-benchmark")), "compare", "0001_a.json", "0002_b.json"]
    environ = {**os.environ, "COLUMNS": "200"}
    shown = subprocess.run(command, cwd=here, env=environ, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    results = json.loads((finished / "results.json").read_text())
    for point in results["points"]:
        assert shown.stdout.count(point["id"]) == 2
    stats = json.loads((here / "0001_a.json").read_text())["benchmarks"][0]["stats"]
    assert stats["data"] == results["points"][0]["metrics"]["step_s"]["medians"]
    assert (stats["rounds"], stats["iterations"]) == (2, 3)
    assert stats["min"] <= stats["median"] <= stats["max"]


def test_an_old_kept_result_has_no_attempts_to_export(here: Path) -> None:
    """It keeps no attempts' medians, so that nothing is made up from its intervals."""
    kept = MEASURED / "tp_scaling-h200x4-20261121.json"
    done = CliRunner().invoke(main, ("report", str(kept), "--format", "pytest-benchmark"))
    assert done.exit_code == 2
    assert "no point has attempts with step times" in done.output


def test_a_kept_result_has_no_traces_to_export(here: Path) -> None:
    """One line that names what is needed; nothing is written."""
    kept = MEASURED / "tp_scaling-h200x2-20261122.json"
    done = CliRunner().invoke(main, ("report", str(kept), "--format", "perfetto", "-o", "out"))
    assert done.exit_code == 2
    assert "--format perfetto needs the run's folder; its attempts and traces are not in results.json" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (here / "out").exists()


def test_a_file_is_replaced_whole(finished: Path, here: Path) -> None:
    """A collector that reads at that moment has the old file or the new one; nothing else is left beside it."""
    target = here / "out" / "pybench.prom"
    target.parent.mkdir()
    target.write_text("old")
    before = target.stat().st_ino
    done = CliRunner().invoke(main, ("report", str(finished), "--format", "openmetrics", "-o", str(target)))
    assert done.exit_code == 0, done.output
    assert target.read_text().endswith("# EOF\n")
    assert target.stat().st_ino != before
    assert [path.name for path in target.parent.iterdir()] == ["pybench.prom"]


@pytest.mark.parametrize("name", ["html", "perfetto", "json", "terminal"])
def test_a_file_that_is_written_is_named(finished: Path, here: Path, name: str) -> None:
    """With its size, as the formats of several files name theirs."""
    done = CliRunner().invoke(main, ("report", str(finished), "--format", "perfetto", "-o", "out"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"out: {(here / 'out').stat().st_size:,} bytes\n"


def test_a_pipe_gets_the_report_alone(finished: Path) -> None:
    """No line behind it names the pipe."""
    command = (str(Path(sys.executable).with_name("pybench")), "report", str(finished), "--format", "json")
    piped = subprocess.run([*command, "-o", "/dev/stdout"], capture_output=True, check=True)
    assert piped.stdout == (finished / "results.json").read_bytes()


@pytest.mark.parametrize("name", ["csv", "openmetrics", "bencher", "pytest-benchmark"])
def test_a_text_format_can_be_piped(finished: Path, name: str) -> None:
    """To standard output, complete."""
    done = CliRunner().invoke(main, ("report", str(finished), "--format", name))
    assert done.exit_code == 0, done.output
    assert done.output.endswith("\n")
    assert "tokens" in done.output


def test_a_format_of_two_files_needs_a_folder(finished: Path, here: Path) -> None:
    """It is named in the message."""
    done = CliRunner().invoke(main, ("report", str(finished), "--format", "github-benchmark"))
    assert done.exit_code == 2
    assert "give their folder with -o DIR" in done.output
    done = CliRunner().invoke(main, ("report", str(finished), "--format", "github-benchmark", "-o", "both"))
    assert done.exit_code == 0, done.output
    assert len(list((here / "both").iterdir())) == 2
