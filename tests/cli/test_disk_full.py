"""A disk that fills up at every moment of a run: one line, exit code 3, and the run goes on once there is room."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.images import _write
from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from pybench.model.errors import MachineError
from pybench.model.record import Record
from pybench.run.images.lock import default_lock, read_lock
from tests.containers.conftest import REQUIRED

Drill = Callable[..., tuple[str, ...]]
DISK_BYTES = 16 * 2**20


@pytest.fixture
def disk(here: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = here / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode and os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} asks for real drills, but {mounted.stderr}")
    if mounted.returncode:
        pytest.skip(mounted.stderr)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, num_bytes_left: int = 0) -> None:
    with (disk / "filler").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(disk).free - num_bytes_left)


def append_again_and_again(folder: RunFolder, record: Record) -> None:
    for number in range(DISK_BYTES):
        folder.journal.append(replace(record, attempt=100 + number))


def pybench(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def told(result: Result) -> str:
    """The last line of a command that met a full disk."""
    assert result.exit_code == 3, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    *progress, last = result.stderr.splitlines()
    assert last.startswith("pybench: ")
    assert not [line for line in progress if line.startswith(("pybench:", "Traceback"))]
    assert "No space left on device (" in last
    assert " bytes free" in last
    return last


@pytest.mark.parametrize("num_bytes_left", [0, 2**16])
def test_before_anything_is_measured(disk: Path, drill: Drill, num_bytes_left: int) -> None:
    """No half-made run stays behind, neither when nothing of the worker fits nor when some of it does."""
    fill(disk, num_bytes_left)
    arguments = (*drill(), "--runs", str(disk / "runs"))
    message = told(pybench(*arguments))
    assert f"{disk}/runs" in message
    free = re.search(r"([\d,]+) bytes free", message)
    assert free is not None
    assert int(free[1].replace(",", "")) <= num_bytes_left
    assert "nothing was measured yet: free space there, then run the same command again" in message
    assert not list((disk / "runs").glob("*"))
    (disk / "filler").unlink()
    assert pybench(*arguments).exit_code == 0


@pytest.mark.parametrize(("behaviour", "num_kept"), [("fill", {2, 3}), ("choke", {2}), ("nearly_fill", {3})])
def test_while_attempts_run(disk: Path, drill: Drill, behaviour: str, num_kept: set[int]) -> None:
    """At the end of an attempt, in the midst of one, between two: what was recorded stays, the rest is still owed."""
    first = pybench(*drill(f"ok,{behaviour}"), "--runs", str(disk / "runs"))
    (run,) = (disk / "runs").iterdir()
    resume = ("run", "--resume", str(run), *drill()[2:])
    assert told(first).endswith(f"; nothing recorded is lost: free space there, then: pybench {' '.join(resume)}")
    kept = (run / "journal.jsonl").read_bytes()
    assert kept[: kept.rfind(b"\n") + 1].count(b'"failure": null') in num_kept  # a line may fit into the last block
    assert f"pybench {' '.join(resume)}" in told(pybench(*resume))  # still full
    (disk / "filler").unlink()
    assert pybench(*resume).exit_code == 0
    journal = (run / "journal.jsonl").read_bytes()
    assert journal.startswith(kept[: kept.rfind(b"\n") + 1])
    assert journal.count(b'"failure": null') == 4


def test_in_the_midst_of_a_line(disk: Path, drill: Drill) -> None:
    """The journal's whole lines stay readable, and the cut one makes way for the next."""
    assert pybench(*drill(), "--runs", str(disk / "runs")).exit_code == 0
    folder = RunFolder.open(next((disk / "runs").iterdir()))
    fill(disk)
    record, *_ = folder.journal.records()
    with pytest.raises(OSError, match="No space left"):
        append_again_and_again(folder, record)
    num_lines = len(folder.journal.records())
    assert num_lines >= 4
    assert not (folder.path / "journal.jsonl").read_bytes().endswith(b"\n")
    (disk / "filler").unlink()
    folder.journal.append(replace(record, attempt=99))
    assert len(folder.journal.records()) == num_lines + 1


def test_when_reports_are_written(disk: Path, drill: Drill) -> None:
    """The last moment: all is measured, and the same command writes the reports."""
    arguments = drill()
    assert pybench(*arguments, "--runs", str(disk / "runs")).exit_code == 0
    (run,) = (disk / "runs").iterdir()
    (run / "results.json").unlink()
    fill(disk)
    resume = ("run", "--resume", str(run), *arguments[2:])
    assert told(pybench(*resume)).endswith(f"pybench {' '.join(resume)}")
    (disk / "filler").unlink()
    assert pybench(*resume).exit_code == 0
    assert (run / "results.json").stat().st_size > 0


def test_a_lock_stays_whole(disk: Path) -> None:
    """`images lock` and its like write beside it first."""
    shutil.copyfile(default_lock(), disk / "images.toml")
    lock = read_lock(disk / "images.toml")
    fill(disk)
    with pytest.raises(MachineError, match=r"No space left on device \(0 bytes free\); the lock is unchanged"):
        _write(lock)
    assert read_lock(disk / "images.toml") == lock
    assert {path.name for path in disk.iterdir()} == {"images.toml", "filler"}
