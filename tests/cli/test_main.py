"""The commands as a user runs them: what they print, what they write, how they exit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from pybench.cli.exit_codes import BY_VERDICT
from pybench.cli.main import main
from pybench.model.results import Verdict

FAKE_WORKER = Path(__file__).parents[1] / "runner" / "fake_worker.py"
SUITE = """
schema = 1
name = "drill"
description = "two points of a fake worker"

[[benchmark]]
name = "decode"
workload = "generate"
backend = "torch"
model = "llama-tiny"
dtype = "float32"
batch_size = 1
prompt_tokens = 1
output_tokens = 2
attempts = 2
max_attempts = 2
steps = 3
time_limit_s = 60

[benchmark.axes]
tensor_parallel = [1, 2]

[[benchmark.expect]]
metric = "output_tokens_per_s"
scaling = "strong"
along = "tensor_parallel"
table = "drill"
"""
TABLE = """
schema = 1
name = "drill"
description = "what the fake worker reaches"

[[row]]
machine = "any"
fabric = "any"
backend = "any"
workload = "generate"
model_class = "any"
metric = "output_tokens_per_s"
count = 2
baseline_count = 1
value = {value}
tolerance = 0.1
kind = "measured"
source = "tests/runner/fake_worker.py"
"""

Drill = Callable[..., tuple[str, ...]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, on a machine without GPUs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
    return tmp_path


@pytest.fixture
def drill(here: Path) -> Drill:
    """Write the drill's suite, its table and a Python that is the fake worker; returns the run's arguments."""

    def write(behaviour: str = "ok", value: float = 2.0) -> tuple[str, ...]:
        (here / "drill.toml").write_text(SUITE)
        (here / "expected").mkdir(exist_ok=True)
        (here / "expected" / "drill.toml").write_text(TABLE.format(value=value))
        python = here / "python"
        path = os.pathsep.join(sys.path)
        # The launcher says: python -I -B worker/__main__.py EXCHANGE [--ranks N].
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH="{path}" FAKE_BEHAVIOUR={behaviour}\nshift 3\n'
            f'exec "{sys.executable}" "{FAKE_WORKER}" "$@"\n'
        )
        python.chmod(0o755)
        return ("run", "drill.toml", "--python", str(python))

    return write


def pybench(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def the_run(here: Path) -> Path:
    (folder,) = (here / "runs").iterdir()
    return folder


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
    *_, said, folder = result.stdout.splitlines()
    assert said.startswith(f"verdict: {verdict} - ")
    assert folder == f"run folder: {the_run(here)}"


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


def test_skipped_points_are_missing_unless_left_out(here: Path, drill: Drill) -> None:
    """Visible both ways; not measured is never a pass."""
    arguments = drill()
    (here / "drill.toml").write_text(SUITE.replace("[1, 2]", "[1, 2, 512]"))
    result = pybench(*arguments)
    assert result.exit_code == 1
    assert "needs 512 CPU cores" in result.stdout
    result = pybench(*arguments, "--max-gpus", "2")
    assert result.exit_code == 0
    assert "left out by --max-gpus 2" in result.stdout


def test_one_point_alone_is_judged_by_nothing(drill: Drill) -> None:
    """``-k`` keeps the baseline only: measured, but no verdict."""
    result = pybench(*drill(), "-k", "tensor_parallel=1")
    assert result.exit_code == 4
    assert result.stdout.splitlines()[-2].startswith("verdict: no_expectation - ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "run takes either a SUITE or --resume RUN"),
        (("run", "drill.toml", "--resume", "runs"), "run takes either a SUITE or --resume RUN"),
        (("run", "--resume", "nowhere"), "nowhere: no run here (no manifest.json); give a folder below runs/"),
        (("report", "nowhere"), "nowhere: no run here (no manifest.json); give a folder below runs/"),
        (("run", "drill.toml", "-k", "and"), "-k: column 1: found 'and', expected a word"),
        (("run", "drill.toml", "-k", "nothing"), "-k 'nothing' keeps no point of drill.toml; `pybench plan"),
        (("run", "drill.toml", "--profile", "h20"), "no profile 'h20'; valid: none, the suite has no profiles"),
        (("run", "drill.toml", "--max-gpus", "0"), "0 is not in the range x>=1"),
        (("run", "drill.toml", "--runs", "drill.toml"), "is a file"),
        (("report", "nowhere", "--format", "pdf"), "'pdf' is not one of"),
        (("rnu",), "No such command 'rnu'"),
    ],
)
def test_misuse_is_exit_2(here: Path, drill: Drill, arguments: tuple[str, ...], message: str) -> None:
    """With a message, without a traceback, and nothing is written."""
    drill()
    result = pybench(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert not (here / "runs").exists()


def test_a_folder_that_cannot_be_made(drill: Drill, here: Path) -> None:
    """The system's reason is told."""
    (here / "file").touch()
    result = pybench(*drill(), "--runs", "file/runs")
    assert result.exit_code == 2
    assert "cannot create the run's folder: Not a directory" in result.stderr


def test_resume_takes_the_runs_own_options(here: Path, drill: Drill) -> None:
    """Those of the command line would make it another run."""
    _, _, *python = drill()
    pybench(*drill())
    result = pybench("run", "--resume", str(the_run(here)), "-k", "x", *python)
    assert result.exit_code == 2
    assert "leave them out" in result.stderr
    resumed = pybench("run", "--resume", str(the_run(here)), *python)
    assert resumed.exit_code == 0, resumed.output


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not readable as JSON"), ("[]", "manifest.json"), ('{"version": 99}', "version 99")],
)
def test_a_damaged_manifest(here: Path, drill: Drill, text: str, message: str) -> None:
    """Reported as what it is; the folder is left as it was."""
    pybench(*drill())
    (the_run(here) / "manifest.json").write_text(text)
    for arguments in (("report", str(the_run(here))), ("run", "--resume", str(the_run(here)))):
        result = pybench(*arguments)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
    assert (the_run(here) / "manifest.json").read_text() == text


def test_a_python_that_is_not_there(here: Path, drill: Drill) -> None:
    """Each attempt fails with the reason, and the run with it."""
    drill()
    result = pybench("run", "drill.toml", "--python", str(here / "nopython"))
    assert result.exit_code == 3
    assert "nopython" in result.stdout


@pytest.mark.slow
def test_ctrl_c(here: Path, drill: Drill) -> None:
    """Exit 130, what was measured is reported, and the way to go on is told."""
    arguments = drill("ok,hang")
    command = [sys.executable, "-c", "from pybench.cli.main import main; main()", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        hung = "runs/*/attempts/*.2/exchange/events.0.jsonl"
        while not list(here.glob(hung)) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    folder = the_run(here)
    assert process.returncode == 130
    assert f"interrupted; go on with: pybench run --resume {folder}" in stderr
    assert "Traceback" not in stderr
    assert "decode[tensor_parallel=1]" in stdout
    assert len((folder / "journal.jsonl").read_text().splitlines()) == 2


def test_plan_lists_every_point(drill: Drill) -> None:
    """And measures none."""
    drill()
    result = pybench("plan", "drill.toml")
    assert result.exit_code == 0
    assert "decode[tensor_parallel=1]: 1 GPUs or ranks, 2 attempts of 3 steps" in result.stdout
    assert not Path("runs").exists()


@pytest.mark.parametrize(("arguments", "key"), [((), "benchmark"), (("--results",), "points")])
def test_schema_is_json(arguments: tuple[str, ...], key: str) -> None:
    """Of suite files, or of results."""
    result = pybench("schema", *arguments)
    assert result.exit_code == 0
    assert key in json.loads(result.stdout)["properties"]


@pytest.mark.parametrize("command", [(), *((name,) for name in main.commands)])
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    """Short and long."""
    long, short = pybench(*command, "--help"), pybench(*command, "-h")
    assert long.exit_code == short.exit_code == 0
    assert long.stdout == short.stdout
    assert long.stdout.startswith("Usage: ")


def test_every_verdict_has_an_exit_code() -> None:
    """The README's table."""
    codes: dict[Verdict, int] = {
        "pass": 0,
        "fail": 1,
        "missing": 1,
        "error": 3,
        "inconclusive": 4,
        "no_expectation": 4,
    }
    assert codes == BY_VERDICT
