"""A run's folder that somebody removes, moves, replaces or closes in mid-run: an error, no verdict; nothing elsewhere.

The fault comes between two steps of the runner, where it would meet it next: at each kind of access in turn.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from pybench.files.run.journal import Journal
from pybench.run import loop
from pybench.run.engines.local import Local
from pybench.run.engines.process import processes_marked
from tests.cli.fault_sweep import write_quick_drill

NAMES = ("manifest.json", "journal.jsonl", "lock", "results.json", "report.html")


def remove(run: Path) -> None:
    shutil.rmtree(run)


def move(run: Path) -> None:
    run.rename(away(run))


def put_a_link(run: Path) -> None:
    """To a folder of somebody else's, with files of the same names."""
    move(run)
    run.symlink_to(victim(run))


def close(run: Path) -> None:
    for folder in (run, run / "attempts"):
        if folder.exists():
            folder.chmod(0o555)


def away(run: Path) -> Path:
    return run.parents[1] / "away"


def victim(run: Path) -> Path:
    return run.parents[1] / "victim"


def undo(run: Path) -> None:
    """Put everything back, where that can be."""
    if run.is_symlink():
        run.unlink()
    if away(run).exists():
        away(run).rename(run)
    if run.exists():
        for folder in (run, run / "attempts"):
            folder.chmod(0o755)


# The runner's calls, and the call at which the folder has changed.
ACCESSES: dict[str, tuple[Any, str, int]] = {
    "a worker's start": (Local, "start", 1),
    "room for an attempt": (loop, "require_room", 2),
    "an attempt's folder": (RunFolder, "fresh_attempt", 2),
    "a record": (Journal, "append", 2),
    "the journal's end": (Journal, "require_complete", 1),
    "a report": (RunFolder, "write_report", 2),
}
CHANGES = (remove, move, put_a_link, close)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("access", ACCESSES)
def test_in_mid_run(here: Path, change: Callable[[Path], None], access: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 2 or 3 and one line names the folder; a restored folder can be resumed."""
    command = write_quick_drill(here)
    (here / "victim" / "attempts" / "kept.1").mkdir(parents=True)
    for name in NAMES:
        (here / "victim" / name).write_text("mine")
    (here / "runs").mkdir()
    before = contents(here / "victim"), sorted(here.iterdir())
    runs: list[Path] = []

    def change_it() -> None:
        runs.extend((here / "runs").iterdir())
        change(runs[0])

    meet(monkeypatch, access, change_it)
    with as_a_user():
        result = CliRunner().invoke(main, command)
    (run,) = runs
    assert result.exit_code in (2, 3), result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    *_, last = result.stderr.splitlines()
    assert last.startswith("pybench: "), last
    assert f"{run}" in last
    assert not tuple(processes_marked(RunFolder(run).mark))
    assert contents(here / "victim") == before[0]
    undo(run)
    assert sorted(here.iterdir()) == before[1]
    if change is not remove:
        monkeypatch.undo()
        again = CliRunner().invoke(main, ["run", "--resume", str(run), *command[2:]])
        assert again.exit_code == 0, again.output


def meet(monkeypatch: pytest.MonkeyPatch, access: str, change: Callable[[], object]) -> None:
    """Change something before the access, at the call of it that is listed."""
    owner, name, count = ACCESSES[access]
    function, calls = getattr(owner, name), list[int]()

    def changed(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == count:
            change()
        return function(*arguments, **more)

    monkeypatch.setattr(owner, name, changed)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


_CAPABILITY_VERSION, _DAC_OVERRIDE = 0x20080522, 1 << 1  # linux/capability.h


@contextmanager
def as_a_user() -> Iterator[None]:
    """Let the modes of folders hold for root, too."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] = effective & ~_DAC_OVERRIDE
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = effective
        assert libc.capset(header, sets) == 0
