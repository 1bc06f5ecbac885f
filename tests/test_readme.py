"""Every command of the READMEs is run, by this file or by the one named here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "suites/README.md", "containers/README.md", "csrc/README.md")
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(readme: str) -> list[str]:
    """Lines behind a prompt in console blocks."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    return [
        line.removeprefix("$ ") for block in _BLOCK.findall(text) for line in block.splitlines() if line[:2] == "$ "
    ]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As from the checkout, with runs kept elsewhere."""
    name, *arguments = shlex.split(command)
    assert name == "pybench"
    kept = ["--runs", str(folder)] if arguments[0] == "run" else []
    return subprocess.run(
        [sys.executable, "-c", "from pybench.cli.main import main; main()", *arguments, *kept],
        cwd=ROOT,
        env={**os.environ, "PYBENCH_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"},
        capture_output=True,
        text=True,
        check=False,
    )


def succeeds(command: str, folder: Path) -> None:
    """Exit 0 and something to read."""
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def measures(command: str, folder: Path) -> None:
    """Every point is measured; the verdict is this machine's own affair."""
    done = run(command, folder)
    assert done.returncode in {0, 1, 4}, done.stderr
    assert "verdict: " in done.stdout
    (results,) = folder.glob("*/results.json")
    assert '"status": "ok"' in results.read_text()
    assert '"status": "failed"' not in results.read_text()


def examines(command: str, folder: Path) -> None:
    """The doctor may find something missing."""
    done = run(command, folder)
    assert done.returncode in {0, 3}, done.stderr
    assert "NVIDIA driver" in done.stdout


def is_a_target(command: str, folder: Path) -> None:  # noqa: ARG001 - one signature for all
    """Make knows what it would do; ``make test`` can't run itself."""
    done = subprocess.run([*shlex.split(command), "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ".venv/bin/" in done.stdout


Check = Callable[[str, Path], None]
CHECKS: dict[str, Check] = {
    "make run": is_a_target,
    "make test": is_a_target,
    "make bench": is_a_target,
    "pybench --help": succeeds,
    "pybench doctor": examines,
    "pybench plan suites/tp_scaling.toml": succeeds,
    "pybench schema": succeeds,
    "pybench images list": succeeds,
    "pybench run suites/tp_scaling.toml": measures,
    'pybench run suites/tp_scaling.toml -k "tensor_parallel=1"': measures,
}


def test_no_command_goes_unchecked() -> None:
    """And no check outlives its command."""
    assert {command for readme in READMES for command in commands(readme)} == set(CHECKS)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a run takes one minute on two idle cores
@pytest.mark.parametrize("command", CHECKS)
def test_command(command: str, tmp_path: Path) -> None:
    """Run from the checkout, as a reader would."""
    CHECKS[command](command, tmp_path / "runs")
