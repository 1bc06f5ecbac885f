"""Every command of the READMEs is run, by this file or by the one named here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import click
import pytest

from pybench.cli.main import main

ROOT = Path(__file__).parents[1]
READMES = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("[!.]*/*.md")))
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$|((?:^ {4}[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"(pybench|make|pip|python3?|git|docker|podman)( |$)")
_PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b")
_INLINE = re.compile(r"`((?:pybench|make)(?: [^`\n]+)?)`")
_ROW = re.compile(r"^\| `(pybench [^`]+)` \|(.*)\|$", re.MULTILINE)
_ROW_OPTION = re.compile(r"`(--?[a-z][^`]*)`")


def commands(text: str) -> Iterator[str]:
    """Lines of fenced or indented blocks behind a prompt or, where a block has none, that begin with a program."""
    for fenced, indented in _BLOCK.findall(text):
        lines = (fenced or dedent(indented)).splitlines()
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in prompted or filter(_PROGRAM.match, lines):
            yield line.partition("  #")[0].rstrip()


def written(readme: Path) -> str:
    return readme.read_text(encoding="utf-8").replace("\\|", "|")


def accepts(command: str) -> None:
    """Pybench has the subcommands and options; a choice is named with all its values, make's target is there."""
    program, *words = shlex.split(command)
    if program == "make":
        is_a_target(command, ROOT)
        return
    node: click.Command = main
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--":
            return
        if word.startswith("-"):
            options = [option for option in node.params if word in option.opts]
            assert options or word in {"-h", "--help"}, f"{command}: no option {word}"
            if "|" in following:
                assert following.split("|") == list(getattr(options[0].type, "choices", ())), command
        elif isinstance(node, click.Group):
            names = word.split("|")
            assert set(names) <= set(node.commands), f"{command}: no command {word}"
            node = node.commands[names[0]]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """By a shell, in a folder where only the suites are at hand."""
    folder.mkdir()
    (folder / "suites").symlink_to(ROOT / "suites")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "PYBENCH_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"}
    return subprocess.run(command, shell=True, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def succeeds(command: str, folder: Path) -> None:
    """Exit 0 and something to read."""
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def writes(command: str, folder: Path) -> None:
    """What is redirected is there."""
    assert run(command, folder).returncode == 0
    assert (folder / command.rpartition("> ")[2]).stat().st_size > 0


def measures(command: str, folder: Path) -> None:
    """Every point is measured; the verdict is this machine's own affair."""
    done = run(command, folder)
    assert done.returncode in {0, 1, 4}, done.stderr
    assert "verdict: " in done.stdout
    (results,) = folder.glob("runs/*/results.json")
    assert '"status": "ok"' in results.read_text()
    assert '"status": "failed"' not in results.read_text()


def would_measure(command: str, folder: Path) -> None:
    """The same suite and options have a plan of some points; the whole suite is measured in earnest by another."""
    succeeds(command.replace("pybench run", "pybench plan"), folder)


def examines(command: str, folder: Path) -> None:
    """The doctor may find something missing."""
    done = run(command, folder)
    assert done.returncode in {0, 3}, done.stderr
    assert "NVIDIA driver" in done.stdout


def asks_registries(command: str, folder: Path) -> None:
    """Agreement, disagreement, or no tool and no answer: each with its words."""
    done = run(command, folder)
    assert done.returncode in {0, 1, 3}, done.stderr
    assert done.stdout or done.stderr.startswith("pybench: ")
    assert "Traceback" not in done.stderr


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
    "pybench images verify": asks_registries,
    "pybench run suites/tp_scaling.toml": measures,
    "pybench run suites/node_check.toml": measures,
    'pybench run suites/tp_scaling.toml -k "tensor_parallel=1"': would_measure,
    "pybench run suites/tp_scaling.toml -k tensor_parallel=2": would_measure,
    "pybench run tp_scaling --max-gpus 4": would_measure,
    "pybench schema > suite.schema.json": writes,
}
SHOWN = {command for readme in READMES for command in commands(written(readme))}
NAMED = {command for readme in READMES for command in _INLINE.findall(written(readme))}


def test_no_command_goes_unchecked() -> None:
    """And no check outlives its command. One with a placeholder can't run; its words are checked instead."""
    assert {command for command in SHOWN if not _PLACEHOLDER.search(command)} == set(CHECKS)


def test_commands_are_found_wherever_they_stand() -> None:
    """A block's language and a missing prompt hide nothing."""
    text = (
        "```console\n$ make run\nmake: done\n```\n    pybench plan S  # why\n```text\n$ ls\nan answer\n```\n"
        "```sh\npip install .\n```\nmake no mistake: pybench run\n\n    make\n    makes\n"
    )
    assert list(commands(text)) == ["make run", "pybench plan S", "ls", "pip install .", "make"]


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a run takes one minute on two idle cores
@pytest.mark.parametrize("command", CHECKS)
def test_command(command: str, tmp_path: Path) -> None:
    """Run from a folder with the suites, as a reader would."""
    CHECKS[command](command, tmp_path / "here")


@pytest.mark.parametrize("command", sorted(NAMED | {c for c in SHOWN if _PLACEHOLDER.search(c)}))
def test_a_command_that_is_only_named(command: str) -> None:
    """Nothing is promised that is not there."""
    accepts(command)


@pytest.mark.parametrize("command", ["pybench rnu", "pybench run --nope", "pybench report RUN --format terminal|pdf"])
def test_a_command_that_is_not_there(command: str) -> None:
    """The check can fail."""
    with pytest.raises(AssertionError):
        accepts(command)


def test_the_table_of_commands_is_whole() -> None:
    """Every command has a row, and every option of a row belongs to its command."""
    rows = _ROW.findall(written(ROOT / "README.md"))
    assert {command.split()[1] for command, _ in rows} == set(main.commands)
    for command, text in rows:
        for option in _ROW_OPTION.findall(text):
            accepts(f"{command} {option}")
