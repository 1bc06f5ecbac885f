"""Paths that are no UTF-8, and terminals that know few characters: a run, its reports and its errors all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Drill = Callable[..., tuple[str, ...]]
CODE = "from pybench.cli.main import main; main()"
LATIN = os.fsdecode(b"caf\xe9")


def pybench(folder: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = (sys.executable, "-c", CODE, *arguments)
    return subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, check=False)


@pytest.fixture
def latin(here: Path, drill: Drill) -> tuple[Path, tuple[str, ...]]:
    """A folder whose name is no UTF-8 with the drill in it, and the run's arguments."""
    arguments = drill()
    folder = here / LATIN
    folder.mkdir()
    for name in ("drill.toml", "expected"):
        (here / name).rename(folder / name)
    return folder, arguments


@pytest.mark.parametrize("absolute", [False, True])
def test_a_folder_that_is_no_utf8(latin: tuple[Path, tuple[str, ...]], absolute: bool) -> None:
    """The run passes, can be resumed and reported; an error names the path as it can be shown."""
    folder, (verb, suite, *rest) = latin
    ran = pybench(folder, verb, folder / "drill.toml" if absolute else suite, *rest)
    assert (ran.returncode, ran.stderr.count(b"Traceback")) == (0, 0), ran.stderr
    (run,) = (folder / "runs").iterdir()
    assert pybench(folder, "run", "--resume", run, *rest).returncode == 0
    for name in ("terminal", "json", "junit", "markdown", "html"):
        assert pybench(folder, "report", run, "--format", name).returncode == 0
    absent = pybench(folder, "plan", folder / "absent.toml")
    assert absent.returncode == 2
    assert absent.stderr.startswith(b"pybench: ")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp437"])
def test_a_terminal_that_knows_few_characters(latin: tuple[Path, tuple[str, ...]], encoding: str) -> None:
    """Each character has a substitute."""
    folder, arguments = latin
    ran = pybench(folder, *arguments, "-v", PYTHONIOENCODING=encoding)
    assert (ran.returncode, ran.stderr.count(b"Traceback")) == (0, 0), ran.stderr
    assert "verdict: pass" in ran.stdout.decode(encoding)
    (run,) = (folder / "runs").iterdir()
    for name in ("json", "markdown", "html"):
        told = pybench(folder, "report", run, "--format", name, PYTHONIOENCODING=encoding)
        assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("refused", ["", "1"])
def test_no_colour_where_none_is_wanted(latin: tuple[Path, tuple[str, ...]], refused: str) -> None:
    """A pipe gets none, with the variable or without."""
    folder, arguments = latin
    ran = pybench(folder, *arguments, NO_COLOR=refused)
    assert ran.returncode == 0
    assert b"\x1b" not in ran.stdout + ran.stderr
