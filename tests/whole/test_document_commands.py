"""Every command, suite and program that a document shows runs, each once."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import pybench
from tests.builders import NO_DRIVER
from tests.documents import INCOMPLETE, ROOT, SHOWN, blocks, extras, is_a_target


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """By a shell, in a folder where only the suites are at hand."""
    folder.mkdir()
    (folder / "suites").symlink_to(ROOT / "suites")
    path = (folder.with_name("bin"), Path(sys.executable).parent, os.environ["PATH"])
    environ = {**os.environ, "PATH": os.pathsep.join(map(str, path)), **dict([NO_DRIVER])}
    return subprocess.run(command, shell=True, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def succeeds(command: str, folder: Path) -> None:
    """Exit 0 and something to read."""
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def writes(command: str, folder: Path) -> None:
    """The redirected output exists."""
    assert run(command, folder).returncode == 0
    assert (folder / command.rpartition("> ")[2]).stat().st_size > 0


def measures_smallest(command: str, folder: Path) -> None:
    """With the smallest model."""
    measures(f"{command} --set model=llama-tiny", folder)


def measures(command: str, folder: Path, *own: str) -> None:
    """Every point is measured, by one attempt of one step; the verdict depends on this machine.

    Workers begin with torch imported: all other parts are what a reader gets.
    """
    options = own or ("--python", str(folder.with_name("bin") / "python"))
    done = run(f"{command} --attempts 1 --steps 1 --set max_warmup_steps=1 {shlex.join(options)}", folder)
    assert done.returncode in {0, 1, 4}, done.stderr
    assert "verdict: " in done.stdout
    (results,) = folder.glob("runs/*/results.json")
    assert '"status": "ok"' in results.read_text()
    assert '"status": "failed"' not in results.read_text()


def measures_many(command: str, folder: Path) -> None:
    """Workers import torch, once for all points; before each, the collector looks at all that is imported."""
    measures(command, folder, "--python", sys.executable)


def would_measure(command: str, folder: Path) -> None:
    """The same suite and options have a plan of some points; another test measures the whole suite."""
    succeeds(command.replace("pybench run", "pybench plan"), folder)


def examines(command: str, folder: Path) -> None:
    """The doctor may find something missing."""
    done = run(command, folder)
    assert done.returncode in {0, 3}, done.stderr
    assert "NVIDIA driver" in done.stdout


def asks_registries(command: str, folder: Path) -> None:
    """The registry agrees, disagrees, or does not answer: each with its message."""
    done = run(command, folder)
    assert done.returncode in {0, 1, 3}, done.stderr
    assert done.stdout or done.stderr.startswith("pybench: ")
    assert "Traceback" not in done.stderr


def installs(command: str, folder: Path) -> None:
    """The extra is there; tests/whole/test_install.py builds and installs a wheel."""
    (extra,) = re.findall(r"\[(\w+)\]", command)
    assert extra in extras()


def makes_an_environment(command: str, folder: Path) -> None:
    """Without pip, which takes most of the time."""
    assert run(f"{command} --without-pip", folder).returncode == 0
    assert (folder / ".venv/bin/python").exists()


def rewrites_tables(command: str, folder: Path) -> None:
    """Nothing is left to rewrite."""
    done = subprocess.run([sys.executable, *shlex.split(command)[1:], "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0


def prints_its_plan(command: str, folder: Path) -> None:
    """It prints the plan for a GPU; tests/test_campaign.py runs a row of it."""
    succeeds(f"{command.replace('docs/', f'{ROOT}/docs/')} --gpus 1 --dry-run", folder)


def unpacks(command: str, folder: Path) -> None:
    """Into the folder example, where the next commands look."""
    succeeds(command, folder)
    assert (folder / "example").is_dir()


def reports_the_example(command: str, folder: Path) -> None:
    """Behind the command that unpacks it."""
    succeeds(f"pybench example >/dev/null && {command}", folder)


Check = Callable[[str, Path], None]
CHECKS: dict[str, Check] = {
    "make run": is_a_target,
    "make check": is_a_target,
    "make test": is_a_target,
    "make bench": is_a_target,
    "pip install '.[torch]'": installs,
    "pip wheel -w wheels '.[torch]'": installs,
    "python3 -m venv .venv": makes_an_environment,
    "python docs/tables.py": rewrites_tables,
    "python docs/campaign.py runs --limit 9m": prints_its_plan,
    "pybench doctor": examines,
    "pybench plan suites/tp_scaling.toml": succeeds,
    "pybench images list": succeeds,
    "pybench images verify": asks_registries,
    "pybench run tp_scaling": measures_smallest,
    "pybench run suites/node_check.toml": measures_many,
    "pybench run quick_check": would_measure,  # tests/whole/test_quick_check.py measures it
    "pybench run serving": measures,
    "pybench run suites/tp_scaling.toml -k tensor_parallel=2": would_measure,
    "pybench run turn_taking -k direct": measures_smallest,
    "pybench example": unpacks,
    "pybench report example/20261128T143804Z-tp_scaling": reports_the_example,
    "pybench report suites/measured/tp_scaling-h200x4-20261121.json": succeeds,
    "pybench plan tp_scaling --set batch_size=1 --set benchmark.decode.attempts=5 --time-limit 2h": succeeds,
    "pybench plan sft_presets --gpu h200 --gpus 4": succeeds,
    "pybench ci github --suite node_check --runner h200 --gpus 8 > pybench.yml": writes,
    "pybench ci gitlab --suite node_check > gitlab-ci.yml": writes,
    "pybench ci jenkins --suite node_check > Jenkinsfile": writes,
    "pybench schema > suite-1.schema.json": writes,
}
"""Each command once, whatever the number of documents that show it."""


def test_no_command_goes_unchecked() -> None:
    """And no check outlives its command. One with a placeholder can't run; tests/test_documents.py reads its words."""
    assert set(CHECKS) == SHOWN - INCOMPLETE


@pytest.mark.timeout(1200)  # a run takes half a minute on two idle cores
@pytest.mark.parametrize("command", CHECKS)
def test_command(command: str, tmp_path: Path, warm_python: Path, warm_pybench: Path) -> None:
    """Run from a folder with the suites, as a reader would."""
    (tmp_path / "bin").mkdir()
    for program in (warm_python, warm_pybench):
        (tmp_path / "bin" / program.name).symlink_to(program)
    CHECKS[command](command, tmp_path / "here")


def test_suites_that_are_shown_have_a_plan(tmp_path: Path, warm_pybench: Path) -> None:
    """A whole suite file in a document is one that pybench accepts."""
    shown = [text for _, text in blocks("toml") if text.startswith("schema = 1")]
    assert shown
    for text in shown:
        (tmp_path / "mine.toml").write_text(text)
        command = (warm_pybench, "plan", str(tmp_path / "mine.toml"))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_programs_that_are_shown_run(fake_nvml: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """Python in a document, with a driver that is a stand-in and something to train."""
    fake_nvml(load="constant:400", devices=1)
    shown = blocks("python")
    assert shown
    printed = []
    for _, text in shown:
        torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))
        try:
            exec(
                compile(text, "document", "exec"),
                {"pybench": pybench, "torch": torch, "train": lambda: time.sleep(0.5)},
            )
        except ModuleNotFoundError as error:
            if error.name not in {"mlflow", "wandb"}:  # trackers that no extra of pybench brings
                raise
            continue
        printed += [float(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert printed
    assert min(printed) > 0
