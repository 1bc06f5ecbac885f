"""Options that change a suite, from the command line to the reports."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from tests.cli.conftest import Drill


def test_settings_are_recorded_and_shown(here: Path, drill: Drill) -> None:
    """In the manifest, in results.json, and in each report that people read."""
    arguments = (
        *drill(),
        "--set",
        "max_warmup_steps=4",
        "--set",
        "benchmark.decode.attempts=1",
        "--set",
        "max_attempts=1",
    )
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code in {0, 4}, done.output
    (folder,) = (here / "runs").iterdir()
    options = ["--set max_warmup_steps=4", "--set benchmark.decode.attempts=1", "--set max_attempts=1"]
    results = json.loads((folder / "results.json").read_text())
    assert results["options"] == options
    assert {point["attempts"] for point in results["points"]} == {1}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [f"--set {word}" for word in manifest["options"]["settings"]] == options
    assert {point["effort"]["max_warmup_steps"] for point in manifest["plan"]["points"]} == {4}
    assert f"changed by {' '.join(options)}" in " ".join(done.output.split())
    assert "changed by " in (folder / "summary.md").read_text()
    assert " ".join(options) in (folder / "report.html").read_text()


def test_plan_shows_how_long_a_limited_run_takes(drill: Drill) -> None:
    """The plan uses the points' times in an earlier run; points that do not fit are named beforehand."""
    CliRunner().invoke(main, drill())
    done = CliRunner().invoke(main, ("plan", "drill.toml", "--time-limit", "1h"))
    assert re.search(r"\ntakes about \d+s by earlier runs\n", done.output), done.output
    done = CliRunner().invoke(main, ("plan", "drill.toml", "--attempts", "100", "--time-limit", "1s"))
    assert "do not fit: --time-limit 1s has" in " ".join(done.output.split())
    assert "; 2 left out\n" in done.output


def test_plan_takes_the_same_options(drill: Drill) -> None:
    """It shows what run would do."""
    drill()
    done = CliRunner().invoke(main, ("plan", "drill.toml", "--set", "attempts=1", "--time-limit", "1h"))
    assert done.exit_code == 0, done.output
    assert re.search(r"^decode\[tensor_parallel=1\] +1 +1 +3 +baseline$", done.output, re.MULTILINE)
    assert "\ntime unknown: " in done.output


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--time-limit", "soon"), "found 'soon', expected a time of at most 7 days such as 90s, 20m or 1h30m"),
        (("--time-limit", "20"), "such as 90s, 20m or 1h30m"),
        (("--time-limit", "0s"), "expected a time"),
        (("--time-limit", "200h"), "expected a time"),
        (("--set", "batchsize=1"), "did you mean 'batch_size'?"),
        (("--set", "batch_size=x"), "found 'x', expected an integer"),
        (("-k", "one", "-k", "two and three"), "given 2 times; give one, such as -k '(one) or (two and three)'"),
    ],
)
def test_a_bad_option_is_a_usage_error(here: Path, drill: Drill, option: tuple[str, str], message: str) -> None:
    """Nothing runs, no folder is made."""
    done = CliRunner().invoke(main, (*drill(), *option))
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not (here / "runs").exists()


def test_plan_for_gpus_that_are_not_here() -> None:
    """The plan has points, memory needs and the reasons of skipped points, but no times of another machine."""
    done = CliRunner().invoke(main, ("plan", "finetune_guide", "--gpu", "h200", "--gpus", "4"))
    assert done.exit_code == 0, done.output
    assert "finetune_guide, profile h200\n" in done.output
    assert "planned for 4 x h200, not for this machine\n" in done.output
    assert "of 140 GiB a GPU  judged by\n" in done.output
    assert "states alone take 156 GiB a GPU, of 140 GiB" in " ".join(done.output.split())
    done = CliRunner().invoke(main, ("plan", "finetune_guide", "--gpu", "h200", "--time-limit", "1h"))
    assert done.exit_code == 2
    assert "give it without --gpu, --gpus and --nodes" in done.output


def test_plan_for_hosts_that_are_not_here() -> None:
    """Points over two hosts, which a plan for this one leaves out."""
    one = CliRunner().invoke(main, ("plan", "fleet_check", "--gpu", "h200", "--gpus", "8"))
    two = CliRunner().invoke(main, ("plan", "fleet_check", "--gpu", "h200", "--gpus", "8", "--nodes", "2"))
    assert (one.exit_code, two.exit_code) == (0, 0)
    assert one.output.endswith("0 points, 0 attempts in 0 processes; 3 left out\n")
    assert "left out: 2 nodes (1 planned for)\n" in one.output
    assert "planned for 2 nodes of 8 x h200, not for this machine\n" in two.output
    assert re.search(r"\n[1-9] points, [^;]*\n", two.output)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_required_gpus_that_no_point_misses_are_no_pass(drill: Drill, command: str) -> None:
    """All points need fewer than are required, or a suite fell to its cpu profile: exit 3 before anything runs."""
    written = drill()
    done = CliRunner().invoke(
        main, (command, *(written[1:] if command == "run" else written[1:2]), "--require", "gpus=1")
    )
    assert done.exit_code == 3
    assert done.stderr.startswith("pybench: --require gpus=1: 0 here (no NVIDIA driver")
    assert done.stderr.endswith("; see pybench doctor, or require what is here\n")
    assert not Path("runs").exists()


def test_required_gpus_that_are_not_planned_for_are_refused() -> None:
    """This machine's doctor knows nothing of them; points that need them are skipped."""
    plan = ("plan", "tp_scaling", "--gpu", "h100", "--require", "gpus=2")
    done = CliRunner().invoke(main, (*plan, "-k", "tensor_parallel=1"))
    assert (done.exit_code, done.stderr) == (2, "pybench: --require gpus=2: 1 planned for; give --gpus 2\n")
    assert CliRunner().invoke(main, (*plan, "-k", "tensor_parallel=1", "--gpus", "2")).exit_code == 0
    assert "skipped: needs 2 GPUs, found 1\n" in CliRunner().invoke(main, plan).output


def test_a_required_backend_that_no_benchmark_has_is_refused(drill: Drill) -> None:
    """Without the check the run would pass without it; a required value of some benchmark is planned."""
    drill()
    done = CliRunner().invoke(main, ("plan", "drill.toml", "--require", "backend=vllm"))
    assert (done.exit_code, done.stderr) == (
        2,
        "pybench: --require backend=vllm: no benchmark of drill has it\n",
    )
    assert CliRunner().invoke(main, ("plan", "drill.toml", "--require", "backend=torch")).exit_code == 0


def test_the_plan_refuses_what_the_run_would(here: Path, drill: Drill) -> None:
    """A table that is not there."""
    drill()
    (here / "expected" / "drill.toml").unlink()
    found = [CliRunner().invoke(main, (command, "drill.toml")) for command in ("plan", "run")]
    assert [each.exit_code for each in found] == [2, 2]
    assert "drill.toml: no expected table 'drill'" in found[0].stderr
    assert found[0].stderr == found[1].stderr


@pytest.mark.parametrize("command", [("explain",), ("bundle",), ("expect", "--from"), ("run", "--resume")])
@pytest.mark.parametrize("name", ["results.json", "my results.json"])
def test_a_file_in_the_place_of_a_runs_folder(here: Path, command: tuple[str, ...], name: str) -> None:
    """One line, with what shows a kept results.json."""
    file = here / name
    file.write_text("{}")
    done = CliRunner().invoke(main, (*command, str(file)))
    assert done.exit_code == 2
    assert done.stderr == (
        f"pybench: {file}: a folder is needed here, and this is a file; what a results.json has is shown by: "
        f"pybench report {shlex.quote(str(file))}\n"
    )
