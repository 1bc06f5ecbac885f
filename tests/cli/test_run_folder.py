"""A run's folder that someone, or a full disk, has damaged: a message that names the file, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.files.run.folder import RunFolder

Drill = Callable[..., tuple[str, ...]]
REPORT, RESUME = ("report",), ("run", "--resume")
BOTH = (REPORT, RESUME)
DEEP = "[" * 100_000 + "\n"


@pytest.fixture
def folder(finished: Path) -> Path:
    """A finished run."""
    return finished


def told(run: Path, command: tuple[str, ...], code: int = 2) -> str:
    """The message of a command that must end in ``code`` and print nothing else."""
    python = ("--python", str(run.parents[1] / "python")) if command is RESUME else ()
    result = CliRunner().invoke(main, [*command, str(run), *python])
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    return result.stderr.replace(f"{run}", "RUN")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("manifest.json", "{", "RUN/manifest.json: not JSON"),
        ("manifest.json", "", "RUN/manifest.json: not JSON"),
        ("manifest.json", DEEP, "RUN/manifest.json: not JSON: maximum recursion depth"),
        ("manifest.json", "[]", "RUN/manifest.json: no version; not written by pybench"),
        (
            "manifest.json",
            '{"version": 1}',
            (
                "pybench: RUN/manifest.json: version 1 is too old for this pybench (reads 5); read it with the pybench "
                "that wrote it, or run it again\n"
            ),
        ),
        ("manifest.json", '{"version": 99}', "from a newer pybench (version 99, this one reads 5); update"),
        ("journal.jsonl", "{\n", "RUN/journal.jsonl:1: not JSON"),
        ("journal.jsonl", DEEP, "RUN/journal.jsonl:1: not JSON: maximum recursion depth"),
        ("journal.jsonl", '{"version": 1}\n', "RUN/journal.jsonl:1: version 1 is too old for this pybench (reads 2)"),
        (
            "journal.jsonl",
            '{"version": 2}\n',
            "RUN/journal.jsonl:1: no checksum; the journal was edited or damaged; get the run's folder again",
        ),
    ],
    ids=[
        "cut",
        "empty",
        "deep",
        "array",
        "old",
        "newer",
        "journal_cut",
        "journal_deep",
        "journal_old",
        "journal_record",
    ],
)
def test_a_damaged_file(folder: Path, file: str, text: str, message: str) -> None:
    """It is named, with its line, and left as it was."""
    (folder / file).write_text(text)
    for command in BOTH:
        assert message in told(folder, command)
    assert (folder / file).read_text() == text


def test_a_journal_that_is_gone(folder: Path) -> None:
    """The measurements stay: resuming would measure again under the old run's name."""
    (folder / "journal.jsonl").unlink()
    before = (folder / "results.json").read_text()
    for command in BOTH:
        assert "RUN/journal.jsonl: not there, and every run has one; get the folder again" in told(folder, command)
    assert (folder / "results.json").read_text() == before
    assert not (folder / "journal.jsonl").exists()


def test_a_path_that_holds_no_run(here: Path, folder: Path) -> None:
    """The error names valid arguments: a run of the folder, a file of a run, or another path."""
    runs = folder.parent
    assert f"a folder of runs; give one of them, such as the newest, {folder.name}" in told(runs, REPORT)
    (here / "notes.md").write_text("")
    assert "neither a run's folder nor a results.json; give one of them" in told(here / "notes.md", REPORT)
    (here / "kept").mkdir()
    (here / "kept" / "one.json").write_text("{}")
    assert "give one of its .json files, or a run's folder" in told(here / "kept", REPORT)


@pytest.mark.parametrize(
    ("name", "message", "commands"),
    [
        ("manifest.json", "RUN: no run here (no manifest.json)", BOTH),
        ("journal.jsonl", "RUN/journal.jsonl: cannot read the journal: Is a directory", BOTH),
        ("lock", "RUN: cannot lock the run: Is a directory", (RESUME,)),
    ],
)
def test_a_folder_where_a_file_belongs(
    folder: Path, name: str, message: str, commands: tuple[tuple[str, ...], ...]
) -> None:
    """The system's reason is told."""
    (folder / name).unlink()
    (folder / name).mkdir()
    for command in commands:
        assert message in told(folder, command)


def test_attempts_that_cannot_be_kept(folder: Path) -> None:
    """Nothing is measured that could not be written down."""
    (folder / "journal.jsonl").write_bytes(b"")
    (folder / "attempts").rename(folder / "away")
    (folder / "attempts").touch()
    assert "cannot create the attempt's folder: Not a directory" in told(folder, RESUME)


def test_a_report_that_cannot_be_written(folder: Path) -> None:
    """The measurements are there, and it is said how to see them."""
    (folder / "results.json").unlink()
    (folder / "results.json").mkdir()
    message = told(folder, RESUME)
    assert "RUN/results.json: cannot write the report: Is a directory; `pybench report` prints it again" in message


def test_a_name_too_long_for_the_system(here: Path) -> None:
    """For a run as for any file."""
    assert "cannot look for a run: File name too long" in told(here / ("a" * 300), REPORT)


def test_another_machine(folder: Path) -> None:
    """Exit 3: the command is right, the machine is not, and what differs is told."""
    run = RunFolder.open(folder)
    manifest = run.read_manifest()
    machine = replace(manifest.machine, cpu_model="abacus")
    run.write_manifest(replace(manifest, machine=machine))
    message = told(folder, RESUME, code=3)
    assert 'not the machine the run began on (cpu: ["abacus", ' in message
    assert "start a new run" in message
