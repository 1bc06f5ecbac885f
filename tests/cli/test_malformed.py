"""Every malformed suite ends in exit 2, with a message and nothing else."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main


def _load_cases() -> dict[str, Any]:
    """The reader's own list of slips; test folders are no packages, so it is loaded by its path."""
    path = Path(__file__).parents[1] / "files" / "test_suite_file.py"
    spec = importlib.util.spec_from_file_location("suite_file_cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


CASES = _load_cases()
MALFORMED: dict[str, tuple[str | bytes, tuple[str, ...]]] = CASES["MALFORMED"]
NOWHERE = {
    "empty",
    "blank",
    "two_bytes",
    "deep_table",
    "many_digits",
    "no_schema",
    "no_name",
    "no_benchmark",
}
"""Slips of the whole file, or whose line the parser does not report."""


def refused(folder: Path, *arguments: str) -> str:
    """The message of a command that must end in exit 2, print nothing else and write nothing."""
    before = sorted(folder.rglob("*"))
    result: Result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert sorted(folder.rglob("*")) == before
    return result.stderr


def test_there_are_enough_kinds() -> None:
    """Of slips to try."""
    assert len(MALFORMED) >= 40


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("slip", MALFORMED)
def test_malformed_suite(here: Path, command: str, slip: str) -> None:
    """Every line names the file, the line in it where one is known, and what is wrong."""
    text, (_, *facts) = MALFORMED[slip]
    (here / "s.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    told = refused(here, command, "s.toml")
    assert [fact for fact in facts if fact not in told] == []
    for problem in told.removeprefix("pybench: ").splitlines():
        assert re.match(r" *s\.toml: " if slip in NOWHERE else r" *s\.toml:\d+: ", problem), problem


def test_a_name_with_a_newline_begins_no_line_of_its_own(here: Path) -> None:
    """Nobody paints a verdict into an error."""
    for command in ("plan", "report", "verify", "bundle -o b.zip", "history"):
        told = CliRunner().invoke(main, (*command.split(), "a\nverdict: pass")).stderr
        assert not [line for line in told.splitlines() if line.startswith("verdict")], told


def test_a_kernels_file_is_refused(here: Path) -> None:
    """A file may be regular without a size, wait for its next line, or fail at its first read."""
    os.mkfifo(here / "pipe.toml")
    assert "not a regular file" in refused(here, "plan", "pipe.toml")
    assert "binary data" in refused(here, "plan", "/proc/self/environ")
    done = CliRunner().invoke(main, ("plan", "/proc/self/mem"))
    assert (done.exit_code, done.stderr.startswith("pybench: /proc/self/mem: ")) == (3, True), done.stderr


def test_points_of_all_benchmarks_are_limited_together(here: Path) -> None:
    """A million of them would take minutes and gigabytes before anything is shown."""
    axes = "".join(f"{key} = {list(range(1, 17))}\n" for key in ("seed", "batch_size", "prompt_tokens"))
    text = CASES["GOOD"].replace("batch_size = 2\nprompt_tokens = 4\n", "")
    head, bench = text.split("[[benchmark]]")
    many = (f"[[benchmark]]{bench}".replace('"b"', f'"b{n}"') + f"[benchmark.axes]\n{axes}" for n in range(3))
    (here / "s.toml").write_text(head + "".join(many))
    assert "8192 points with those before it, a suite has at most 4096" in refused(here, "plan", "s.toml")


def test_a_file_of_100_mb(here: Path) -> None:
    """Refused by its size, unread."""
    with (here / "s.toml").open("wb") as file:
        file.truncate(100_000_000)
    assert "100000000 bytes; a suite has at most" in refused(here, "run", "s.toml")


def test_no_such_file_and_a_folder(here: Path) -> None:
    """Each with what next."""
    (here / "folder").mkdir()
    assert "a shipped suite; did you mean 'tp_scaling' or " in refused(here, "run", "tpscaling")
    assert "no such file; `pybench plan` alone lists the shipped suites" in refused(here, "run", "nowhere/s.toml")
    assert "plan with options takes a SUITE; `pybench plan` alone lists" in refused(here, "plan", "--gpu", "h200")
    assert "can't be read: File name too long" in refused(here, "plan", "a" * 300)
    assert "not a regular file; a suite is a .toml file" in refused(here, "run", "folder")


def test_an_unreadable_file(here: Path) -> None:
    """The error has the system's reason: here, a link to itself."""
    (here / "s.toml").symlink_to("s.toml")
    assert "can't be read" in refused(here, "run", "s.toml")


def test_a_table_that_is_nowhere(here: Path) -> None:
    """The error lists the existing ones."""
    text = (
        CASES["GOOD"] + CASES["AXIS"] + CASES["SCALING"].replace('metric = "step_s"', 'metric = "output_tokens_per_s"')
    )
    (here / "s.toml").write_text(text)
    assert "no expected table 't'; there are collective_busbw," in refused(here, "run", "s.toml")


def test_a_malformed_table(here: Path) -> None:
    """The table's file is named, not the suite's."""
    text = (
        CASES["GOOD"] + CASES["AXIS"] + CASES["SCALING"].replace('metric = "step_s"', 'metric = "output_tokens_per_s"')
    )
    (here / "s.toml").write_text(text)
    (here / "expected").mkdir()
    (here / "expected" / "t.toml").write_text("schema = \n")
    assert refused(here, "run", "s.toml").startswith("pybench: expected/t.toml:1: not valid TOML")


def test_a_real_process_prints_the_same(here: Path) -> None:
    """Nothing outside the command's own door adds a traceback."""
    (here / "s.toml").write_text("schema = 1\nname = 7\n")
    done = subprocess.run(
        [sys.executable, "-c", "from pybench.cli.main import main; main()", "run", "s.toml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "s.toml:2: name: found 7, expected a string" in done.stderr
    assert "Traceback" not in done.stderr
