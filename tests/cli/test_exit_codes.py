"""Exit codes: an unexpected error is no verdict, and lost output does not change a verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli import exit_codes
from pybench.cli.main import main
from pybench.run import prepare
from pybench.run.engines import choice

Drill = Callable[..., tuple[str, ...]]
CODE = "from pybench.cli.main import main; main()"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_before_a_run_is_named(
    here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """While an engine is chosen, which may make an image file: exit 130, one line, and no run's folder."""
    monkeypatch.setattr(choice, "choose_launcher", lambda *_any, **_options: signal.raise_signal(number))
    arguments = drill()
    # A shell that started the tests behind & or nohup has these signals ignored.
    before = signal.signal(number, signal.default_int_handler)
    try:
        result = CliRunner().invoke(main, arguments)
        after = signal.getsignal(number)
    finally:
        signal.signal(number, before)
    assert (result.exit_code, result.stderr) == (exit_codes.INTERRUPTED, "pybench: interrupted\n")
    assert after is signal.default_int_handler
    assert not list(here.glob("runs/*"))


def test_an_internal_error_is_no_verdict(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 70, one line, and a file with the traceback."""

    def broken(*_any: object, **_options: object) -> None:
        raise KeyError("nobody caught it")

    monkeypatch.setattr(prepare, "prepare_run", broken)
    monkeypatch.setenv("TMPDIR", str(here))
    result = CliRunner().invoke(main, drill())
    assert result.exit_code == exit_codes.INTERNAL == 70
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    start, _, file = line.rpartition(" ")
    assert start == "pybench: internal error: KeyError: 'nobody caught it'; please report it with"
    assert "nobody caught it" in Path(file).read_text()
    Path(file).unlink()


def test_what_the_system_refuses_is_the_machines_trouble(
    here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only or broken disk ends in a line with its name."""

    def refused(*_any: object, **_options: object) -> None:
        raise OSError(5, "Input/output error", "/disk/file")

    monkeypatch.setattr(prepare, "prepare_run", refused)
    result = CliRunner().invoke(main, drill())
    assert result.exit_code == exit_codes.MACHINE
    assert result.stderr.startswith(
        "pybench: /disk/file: Input/output error; look for the fault in the kernel's log (dmesg); details: "
    )
    Path(result.stderr.split()[-1]).unlink()
    assert here.is_dir()


@pytest.mark.parametrize(("streams", "value", "code"), [("output", 3.0, 1), ("both", 2.0, 0)])
def test_a_closed_output_changes_no_verdict(
    here: Path, drill: Drill, warm_pybench: Path, value: float, code: int, streams: str
) -> None:
    """As ``pybench run ... | head -1`` leaves it: every attempt is made, and the code is the verdict's."""
    arguments = drill("ok", value)
    reading, writing = os.pipe()
    os.close(reading)
    error = writing if streams == "both" else subprocess.PIPE
    done = subprocess.run((warm_pybench, *arguments), stdout=writing, stderr=error, check=False)
    os.close(writing)
    assert done.returncode == code, done.stderr
    if streams == "output":
        assert b"Traceback" not in done.stderr
        assert b"BrokenPipe" not in done.stderr
    (run,) = (here / "runs").iterdir()
    assert len((run / "journal.jsonl").read_bytes().splitlines()) >= 4
    assert (run / "results.json").is_file()


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_streams_that_were_never_open(here: Path, drill: Drill, closed: str) -> None:
    """As some daemons start a program: the verdict's code, and no file of the run in the place of a stream."""
    command = ("sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", CODE)
    done = subprocess.run((*command, *drill()), stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    (run,) = (here / "runs").iterdir()
    assert len((run / "journal.jsonl").read_bytes().splitlines()) == 4
    assert json.loads((run / "results.json").read_bytes())["verdict"] == "pass"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output(here: Path, drill: Drill, warm_pybench: Path) -> None:
    """A run keeps its verdict; a command that only prints has failed. Both name it."""
    arguments = drill()
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run((warm_pybench, *arguments), stdout=full, stderr=subprocess.PIPE, check=False)
        printed = subprocess.run((warm_pybench, "schema"), stdout=full, stderr=subprocess.PIPE, check=False, cwd=here)
    assert ran.returncode == 0
    assert b"pybench: standard output: No space left on device" in ran.stderr
    assert (printed.returncode, printed.stderr) == (3, b"pybench: standard output: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("report", "--help")])
def test_a_full_disk_under_a_help(arguments: tuple[str, ...]) -> None:
    """One line and exit code 3, as for every command that only prints."""
    with Path("/dev/full").open("w") as full:
        command = (sys.executable, "-c", CODE, *arguments)
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (3, b"pybench: standard output: No space left on device\n")


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("report", "--help")])
def test_a_help_that_nobody_reads_to_its_end(arguments: tuple[str, ...]) -> None:
    """As ``pybench --help | true`` leaves it: nothing went wrong."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run((sys.executable, "-c", CODE, *arguments), stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("run", "--no-such-option"), ("no-such-command",), ("run", "absent")])
def test_a_mistake_keeps_its_code_where_no_error_can_be_printed(
    here: Path, warm_pybench: Path, arguments: tuple[str, ...]
) -> None:
    """1 would be a verdict."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run((warm_pybench, *arguments), stderr=full, cwd=here, check=False)
    assert done.returncode == exit_codes.USAGE


def test_an_error_steers_no_terminal(here: Path) -> None:
    """A file's own text, or its name, may be in the message."""
    (here / "evil.toml").write_text('schema = 1\nname = "\\u001b[31m\\u202ex"\n')
    result = CliRunner().invoke(main, ("plan", "evil.toml"))
    assert result.exit_code == exit_codes.USAGE
    assert result.stderr.replace("\n", "").isprintable()
    absent = CliRunner().invoke(main, ("plan", "no\x1b[31m.toml"))
    assert absent.stderr.replace("\n", "").isprintable()


@pytest.mark.parametrize("interval", ["nan", "inf", "1e30"])
def test_an_interval_that_is_no_length_of_time_is_a_wrong_option(interval: str) -> None:
    """Before anything is measured, and no internal error."""
    result = CliRunner().invoke(main, ["power", "watch", "--interval", interval])
    assert result.exit_code == 2
    assert "Invalid value for '--interval'" in result.stderr
