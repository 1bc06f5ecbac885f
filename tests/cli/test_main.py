"""The commands as a user runs them: output, files, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click import Group
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result

from pybench import __version__
from pybench.cli.exit_codes import BY_VERDICT
from pybench.cli.main import main
from pybench.model.verdict import Verdict
from tests.programs import commands_below

Drill = Callable[..., tuple[str, ...]]


def pybench(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("report", ""), "'RUN'"),
        (("report", "RUN", "--format", "html", "-o", ""), "'-o' / '--output'"),
        (("run", ""), "'[SUITE]'"),
        (("run", "drill.toml", "--runs", ""), "'--runs'"),
        (("gate", "RUN", "--history", ""), "'--history'"),
        (("fleet", "check", ""), "'[NODE=]RUN...'"),
    ],
)
def test_an_empty_path_is_refused(here: Path, arguments: tuple[str, ...], option: str) -> None:
    """As a variable that is not set leaves it; the current folder is written as a dot."""
    result = pybench(*arguments)
    assert (result.exit_code, [*here.iterdir()]) == (2, []), result.output
    assert f"Invalid value for {option}: an empty path; is a variable of the shell not set?" in result.stderr


def test_a_format_without_a_place_for_it_is_refused(here: Path, finished: Path) -> None:
    """Files need a folder, bytes a file; nothing is written."""
    run = str(finished)
    for arguments, reason in (
        (
            ("--format", "github-benchmark"),
            "--format github-benchmark writes several files; give their folder with -o DIR",
        ),
        (("--format", "perfetto"), "--format perfetto is not text; give its file with -o FILE"),
        (("--format", "json", "-o", "."), ".: cannot be written: Is a directory; give a file"),
        (
            ("--format", "json", "-o", "absent/results.json"),
            "absent/results.json: cannot be written: No such file or directory; make its folder first",
        ),
        (("--format", "json", "-v"), "-v belongs to --format terminal; --format json is always complete"),
    ):
        refused = pybench("report", run, *arguments)
        assert (refused.exit_code, refused.stderr) == (2, f"pybench: {reason}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "run takes either a SUITE, alone or with one of --ab and --aa, or --resume RUN"),
        (
            ("run", "drill.toml", "--resume", "runs"),
            "run takes either a SUITE, alone or with one of --ab and --aa, or --resume RUN",
        ),
        (("run", "drill.toml", "other.toml"), "other.toml: run takes one SUITE; only --sbatch takes further words"),
        (("run", "--resume", "nowhere"), "nowhere: there is no such folder; give a folder below runs/"),
        (("report", "nowhere"), "nowhere: there is no such folder; give a folder below runs/"),
        (("run", "drill.toml", "-k", "and"), "-k 'and': no expression from column 1 on"),
        (("run", "drill.toml", "-k", "nothing"), "-k 'nothing' keeps no point of drill.toml, which has decode["),
        (("run", "drill.toml", "--profile", "h20"), "no profile 'h20'; valid: none, the suite has no profiles"),
        (("run", "drill.toml", "--max-gpus", "0"), "0 is not in the range x>=1"),
        (("run", "drill.toml", "--runs", "drill.toml"), "is a file"),
        (("report", "nowhere", "--format", "pdf"), "'pdf' is not one of"),
        (("rnu",), "No such command 'rnu'; did you mean 'run'?"),
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


def test_resume_takes_the_runs_own_options(here: Path, finished: Path) -> None:
    """Options of the command line would make it another run."""
    python = ("--python", str(here / "python"))
    result = pybench("run", "--resume", str(finished), "-k", "x", *python)
    assert result.exit_code == 2
    assert "leave the others out (-k)" in result.stderr
    resumed = pybench("run", "--resume", str(finished), *python)
    assert resumed.exit_code == 0, resumed.output


def test_a_python_that_is_not_there(here: Path, drill: Drill) -> None:
    """A mistake on the command line, told before anything is written."""
    drill()
    result = pybench("run", "drill.toml", "--python", str(here / "nopython"))
    assert result.exit_code == 2
    assert f"--python {here}/nopython: no such program" in result.stderr
    assert not (here / "runs").exists()


def test_plan_lists_every_point(drill: Drill) -> None:
    """And measures none."""
    drill()
    result = pybench("plan", "drill.toml")
    assert result.exit_code == 0
    assert re.search(r"^decode\[tensor_parallel=1\] +1 +2 +3 +baseline$", result.stdout, re.MULTILINE)
    assert not Path("runs").exists()


def test_a_lost_gpu_is_told_before_anything_is_measured(drill: Drill, fake_nvml: Callable[..., None]) -> None:
    """By plan and by run, which measure no CPU cores in place of the only GPU."""
    arguments = drill()
    fake_nvml(devices=1, fail="nvmlDeviceGetUUID:15")
    for told in (pybench("plan", "drill.toml"), pybench(*arguments)):
        assert told.exit_code == 3
        assert "no usable GPU: GPU 0 can't be queried: GPU is lost" in told.stderr
        assert "--profile cpu" in told.stderr


def test_gpus_that_nothing_may_use_are_named(
    drill: Drill, fake_nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass on CPU cores is not taken for one on GPUs."""
    arguments = drill()
    fake_nvml(devices=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    for named in (pybench("plan", "drill.toml"), pybench(*arguments)):
        assert named.exit_code == 3
        assert "no usable GPU: CUDA_VISIBLE_DEVICES hides every GPU, by 0,0: " in named.stderr
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    asked = pybench("plan", "drill.toml")
    assert asked.exit_code == 0
    assert asked.stderr.splitlines()[0].endswith("; points run on CPU cores")


@pytest.mark.parametrize("profile", ["h200", "a100-40gb"])
def test_a_profile_of_gpus_measures_no_cpu_cores(here: Path, profile: str) -> None:
    """Where there is no GPU, who names a profile of GPUs means another machine; a plan for it is one option away."""
    for command in ("plan", "run"):
        done = pybench(command, "train_strategies", "--profile", profile)
        assert done.exit_code == 3
        assert "no usable GPU: " in done.stderr
        assert f"; --profile {profile} is for GPUs; to measure CPU cores instead, give --profile cpu, " in done.stderr
        assert done.stderr.endswith(f"or plan for such: pybench plan SUITE --gpu {profile}\n")
    assert not (here / "runs").exists()
    assert pybench("plan", "train_strategies", "--gpu", profile, "--profile", profile).exit_code == 0


@pytest.mark.parametrize(("arguments", "key"), [((), "benchmark"), (("results",), "points")])
def test_schema_is_json(arguments: tuple[str, ...], key: str) -> None:
    """Of suite files, or of results."""
    result = pybench("schema", *arguments)
    assert result.exit_code == 0
    assert key in json.loads(result.stdout)["properties"]


@pytest.mark.parametrize(
    ("words", "incomplete", "names"),
    [
        (("run",), "tp_sc", {"tp_scaling"}),
        (("run", "tp_scaling", "-k"), "", {"decode", "engine"}),
        (("plan", "tp_scaling", "--gpus", "2", "-k"), "dec", {"decode"}),
        (("plan", "no_such_suite", "-k"), "", set()),
        (("run", "-k"), "", set()),
        (("report",), "quick", {"runs/20261128T143259Z-quick_check"}),
    ],
)
def test_completion(here: Path, words: tuple[str, ...], incomplete: str, names: set[str]) -> None:
    """Of shipped suites, of a suite's benchmarks, and of runs by any part of their name."""
    (here / "runs" / "20261128T143259Z-quick_check").mkdir(parents=True)
    items = BashComplete(main, {}, "pybench", "_PYBENCH_COMPLETE").get_completions(list(words), incomplete)
    assert {item.value for item in items if item.type == "plain"} == names


def test_version() -> None:
    """The installed package's own."""
    result = CliRunner().invoke(main, ["--version"], prog_name="pybench")
    assert (result.exit_code, result.stdout) == (0, f"pybench, version {__version__}\n")


@pytest.mark.parametrize("command", [(), *((name,) for name in commands_below(main))])
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    """Short and long."""
    long, short = pybench(*command, "--help"), pybench(*command, "-h")
    assert long.exit_code == short.exit_code == 0
    assert long.stdout == short.stdout
    assert long.stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    "group", [(), *((name,) for name, below in commands_below(main).items() if isinstance(below, Group))]
)
def test_a_list_of_commands_cuts_no_sentence(group: tuple[str, ...]) -> None:
    """The summary of each command fits its line at 80 columns."""
    _, _, listed = pybench(*group, "--help").stdout.partition("Commands:\n")
    assert listed
    assert "..." not in listed


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
