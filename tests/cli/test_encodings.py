"""A run, its reports and its errors with paths outside UTF-8 and terminals with few characters."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import pybench as pybench_package
from pybench.cli.main import main

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


@pytest.mark.parametrize(("absolute", "no_color"), [(False, "1"), (True, "")])
def test_a_folder_that_is_no_utf8(
    latin: tuple[Path, tuple[str, ...]],
    warm_pybench: Path,
    monkeypatch: pytest.MonkeyPatch,
    absolute: bool,
    no_color: str,
) -> None:
    """The run passes, can be resumed and reported, and colours no pipe; an error names the path as it can be shown."""
    folder, (verb, suite, *rest) = latin
    ran = pybench(folder, verb, folder / "drill.toml" if absolute else suite, *rest, NO_COLOR=no_color)
    assert (ran.returncode, ran.stderr.count(b"Traceback")) == (0, 0), ran.stderr
    assert b"\x1b" not in ran.stdout + ran.stderr
    monkeypatch.chdir(folder)
    (run,) = (folder / "runs").iterdir()
    assert CliRunner().invoke(main, ("run", "--resume", str(run), *rest)).exit_code == 0
    for name in ("terminal", "json", "junit", "markdown", "html"):
        assert CliRunner().invoke(main, ("report", str(run), "--format", name)).exit_code == 0
    absent = subprocess.run((warm_pybench, "plan", folder / "absent.toml"), capture_output=True, check=False)
    assert absent.returncode == 2
    assert absent.stderr.startswith(b"pybench: ")


@pytest.mark.parametrize("encoding", ["ascii", "cp437"])
def test_a_terminal_that_knows_few_characters(
    latin: tuple[Path, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Each character has a substitute."""
    folder, arguments = latin
    ran = pybench(folder, *arguments, "-v", PYTHONIOENCODING=encoding)
    assert (ran.returncode, ran.stderr.count(b"Traceback")) == (0, 0), ran.stderr
    assert "verdict: pass" in ran.stdout.decode(encoding)
    monkeypatch.chdir(folder)
    (run,) = (folder / "runs").iterdir()
    for name in ("json", "markdown", "html"):
        told = CliRunner(charset=encoding).invoke(main, ("report", str(run), "--format", name))
        assert told.exit_code == 0, told.output


def _printers() -> Iterator[tuple[str, int]]:
    """Places of the package that print by another way than ``pybench.cli.io.echo``."""
    package = Path(pybench_package.__file__).parent
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if name.startswith("worker/"):  # a worker's streams are a file, its log
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="print" | "pprint")):
                    yield name, node.lineno
                case ast.Attribute(value=ast.Name(id="click"), attr="echo" | "secho" | "echo_via_pager"):
                    yield name, node.lineno
                case ast.Attribute(value=ast.Attribute(attr="stdout" | "stderr"), attr="write" | "writelines"):
                    yield name, node.lineno


def test_one_function_prints() -> None:
    """Others know nothing of the terminal's encoding."""
    assert {name for name, _ in _printers()} == {"cli/io.py"}, [*_printers()]


COMMANDS = (
    ("plan",),
    ("plan", "tp_scaling"),
    ("plan", "tp_scaling", "--gpu", "h200"),
    ("images",),
    ("doctor",),
    ("schema",),
    ("power", "probe"),
    ("power", "record", "--", "/bin/true"),
    ("ci", "github", "tp_scaling"),
    ("run", "nowhere.toml"),
)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "koi8-r", "euc_jp"])
def test_commands_on_a_terminal_that_knows_few_characters(
    encoding: str, fake_nvml: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on one that shows other scripts than ours."""
    fake_nvml(devices=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # doctor asks each engine for seconds
    for command in COMMANDS:
        result = CliRunner(charset=encoding).invoke(main, command)
        assert result.exit_code in {0, 2}, (command, result.output)
        assert result.output.strip()
