"""Whole runs as a user makes them: output, files, exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main

Drill = Callable[..., tuple[str, ...]]


def pybench(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def the_run(here: Path) -> Path:
    (folder,) = (here / "runs").iterdir()
    return folder


def widen(suite: Path) -> None:
    """Add a point that no machine has the cores for."""
    suite.write_text(suite.read_text().replace("[1, 2]", "[1, 2, 512]"))


@pytest.mark.parametrize(
    ("behaviour", "value", "verdict", "code"),
    [("ok", 2.0, "pass", 0), ("ok", 3.0, "fail", 1), ("crash", 2.0, "error", 3)],
)
def test_run_exits_with_its_verdict(
    here: Path, drill: Drill, behaviour: str, value: float, verdict: str, code: int
) -> None:
    """And says it last, before the run's folder."""
    result = pybench(*drill(behaviour, value))
    assert result.exit_code == code, result.output
    said, _, folder = result.stdout.rpartition("\n\n")[2].partition("run folder: ")
    assert said.startswith(f"verdict: {verdict} - ")
    assert max(map(len, said.splitlines())) <= 80
    assert folder == f"{the_run(here)}\n"


def test_run_leaves_its_reports(here: Path, drill: Drill) -> None:
    """The same that ``report`` rebuilds from the folder."""
    shown = pybench(*drill()).stdout
    folder = the_run(here)
    assert json.loads((folder / "results.json").read_text())["verdict"] == "pass"
    assert ET.parse(folder / "junit.xml").getroot().tag == "testsuites"
    for name, file in (("json", "results.json"), ("junit", "junit.xml"), ("markdown", "summary.md")):
        rebuilt = pybench("report", str(folder), "--format", name)
        assert (rebuilt.exit_code, rebuilt.stdout) == (0, (folder / file).read_text())
    assert pybench("report", str(folder)).stdout in shown


def test_points_that_do_not_fit_are_left_out_unless_required(here: Path, drill: Drill) -> None:
    """Visible each way; what somebody requires and is not measured is missing."""
    arguments = drill()
    widen(here / "drill.toml")
    result = pybench(*arguments)
    assert result.exit_code == 0
    assert "left out: 512 CPU cores" in " ".join(result.stdout.split())
    result = pybench(*arguments, "--require", "gpus=512")
    assert result.exit_code == 1
    assert "needs 512 CPU cores" in result.stdout
    result = pybench(*arguments, "--max-gpus", "2")
    assert result.exit_code == 0
    assert "left out: 512 GPUs (--max-gpus 2)" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-k", "tensor_parallel=512"), "nothing was judged: left out: 512 CPU cores"),
        (("-k", "tensor_parallel=2", "--max-gpus", "1"), "nothing was judged: left out: 2 GPUs (--max-gpus 1)"),
    ],
)
def test_nothing_measured_is_never_a_pass(here: Path, drill: Drill, options: tuple[str, ...], reason: str) -> None:
    """Whatever it was that left no point to measure."""
    arguments = drill()
    widen(here / "drill.toml")
    result = pybench(*arguments, *options)
    assert result.exit_code == 4
    assert ": 0 attempts" in result.stderr
    verdict = " ".join(result.stdout.rpartition("\n\n")[2].split())
    assert verdict.startswith("verdict: no expectation - ")
    assert reason in verdict


def test_one_attempt_is_inconclusive(here: Path, drill: Drill) -> None:
    """Exactly what was expected, but no spread to believe it by: exit 4."""
    arguments = drill()
    suite = here / "drill.toml"
    suite.write_text(suite.read_text().replace("attempts = 2", "attempts = 1"))
    result = pybench(*arguments)
    assert result.exit_code == 4
    assert result.stdout.rpartition("\n\n")[2].startswith("verdict: inconclusive - ")


def test_attempts_and_steps_of_the_command_line(here: Path, drill: Drill) -> None:
    """The option overrides the suite and the verdict's needs; the run's manifest records it."""
    result = pybench(*drill(), "--attempts", "1", "--steps", "3")
    assert result.exit_code == 4
    assert len((the_run(here) / "journal.jsonl").read_text().splitlines()) == 2
    manifest = json.loads((the_run(here) / "manifest.json").read_text())
    efforts = [point["effort"] for point in manifest["plan"]["points"]]
    assert {(effort["attempts"], effort["max_attempts"], effort["steps"]) for effort in efforts} == {(1, 1, 3)}
    refused = pybench("run", "--resume", str(the_run(here)), "--attempts", "2")
    assert (refused.exit_code, "leave the others out (--attempts)" in refused.stderr) == (2, True)


def test_one_point_alone_is_judged_by_nothing(drill: Drill) -> None:
    """``-k`` keeps the baseline only: measured, but no verdict."""
    result = pybench(*drill(), "-k", "tensor_parallel=1")
    assert result.exit_code == 4
    assert result.stdout.rpartition("\n\n")[2].startswith("verdict: no expectation - ")


def test_a_python_named_from_here(drill: Drill) -> None:
    """A worker starts in another folder; a relative path is relative to the shell's folder."""
    _, _, option, _ = drill()
    result = pybench("run", "drill.toml", option, "./python")
    assert result.exit_code == 0, result.output


def test_ctrl_c(here: Path, drill: Drill, warm_pybench: Path) -> None:
    """The run exits with 130, reports its measurements, and names the command that resumes it."""
    arguments = drill("ok,hang")
    with subprocess.Popen(
        [warm_pybench, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        hung = "runs/*/attempts/*.2/exchange/events.0.jsonl"
        while not list(here.glob(hung)) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    folder = the_run(here)
    assert process.returncode == 130
    assert f"interrupted; go on with: pybench run --resume {folder} --python {arguments[-1]}\n" in stderr
    assert (stdout + stderr).count("--resume") == 1
    assert "Traceback" not in stderr
    assert re.search(r"^TP 1 .*\d", stdout, re.MULTILINE)
    assert len((folder / "journal.jsonl").read_text().splitlines()) == 2


def test_quiet_prints_the_report_alone(drill: Drill) -> None:
    """No progress and no notes; the report is that of ``pybench report``."""
    arguments = drill()
    done = pybench(*arguments, "--quiet")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("drill")


def test_a_stopped_run_is_interrupted_and_one_at_work_is_running(
    here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its rows say: attempts are owed."""
    assert pybench(*drill()).exit_code == 0
    folder = the_run(here)
    journal = folder / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    assert pybench("report", str(folder)).stdout.splitlines()[0].endswith("interrupted")
    monkeypatch.setattr("pybench.report.run.view.is_written", lambda _path: True)
    assert pybench("report", str(folder)).stdout.splitlines()[0].endswith("running")
