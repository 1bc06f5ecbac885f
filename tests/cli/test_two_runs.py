"""Two runs that begin at once on one machine: the second names the first, waits for it, and measures after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

from pybench.machine.device_lock import locked_devices
from tests.builders import NO_DRIVER
from tests.cli.fault_sweep import write_quick_drill

LIMIT_S = 120


def started(folder: Path, locks: Path, pybench: Path, command: tuple[str, ...]) -> subprocess.Popen[str]:
    """A run that stands in ``folder``."""
    environment = {**os.environ, "PYBENCH_LOCKS": str(locks)} | dict([NO_DRIVER])
    return subprocess.Popen((pybench, *command), cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def line_with(run: subprocess.Popen[str], words: str) -> str:
    """The next line of its standard error that has them."""
    assert run.stderr is not None
    return next((line for line in run.stderr if words in line), "")


def measured(folder: Path) -> tuple[datetime, datetime]:
    """From the first attempt's start to the last one's end, which are known to the second."""
    (run,) = (folder / "runs").iterdir()
    assert json.loads((run / "results.json").read_text())["verdict"] == "pass"
    records = [json.loads(line)["record"] for line in (run / "journal.jsonl").read_text().splitlines()]
    begun = [datetime.fromisoformat(record["started_utc"]) for record in records]
    return begun[0], begun[-1] + timedelta(seconds=records[-1]["duration_s"])


def test_the_second_of_two_runs_waits(tmp_path: Path, warm_pybench: Path) -> None:
    """The workers of the first one wait until the second has named it."""
    pybench = Path(sys.executable).with_name("pybench")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    commands = [write_quick_drill(folder) for folder in folders]
    python = folders[0] / "python"
    sign = tmp_path / "sign"
    python.write_text(python.read_text().replace("shift 3;", f'shift 3; while [ ! -e "{sign}" ]; do sleep 0.02; done;'))
    with started(folders[0], tmp_path / "locks", pybench, commands[0]) as first:
        assert line_with(first, "kept in"), "the first run holds its devices"
        with started(folders[1], tmp_path / "locks", warm_pybench, commands[1]) as second:
            waiting = line_with(second, "is in use by")
            sign.touch()
            assert f"is in use by process {first.pid}, {folders[0]}/runs/" in waiting
            assert "waiting for it to end" in waiting
            assert (first.wait(LIMIT_S), second.wait(LIMIT_S)) == (0, 0)
    (_, ended), (begun, _) = measured(folders[0]), measured(folders[1])
    assert begun >= ended - timedelta(seconds=1)


def test_devices_that_cannot_be_had_leave_no_folder(tmp_path: Path, warm_pybench: Path) -> None:
    """Another run holds them for longer than the second waits, or the folder of locks takes none."""
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders:
        folder.mkdir()
    commands = [write_quick_drill(folder) for folder in folders]
    (tmp_path / "file").touch()
    with locked_devices((), "process 7, runs/other"):
        locks = Path(os.environ["PYBENCH_LOCKS"])
        with started(folders[1], locks, warm_pybench, (*commands[1], "--wait", "1s")) as second:
            assert line_with(second, "pybench: core-"), "it is told who holds them"
    with started(folders[2], tmp_path / "file", warm_pybench, commands[2]) as third:
        assert line_with(third, "cannot lock core-"), "it is told what to set"
    assert (second.returncode, third.returncode) == (3, 3)
    assert [[*folder.glob("runs/*")] for folder in folders] == [[], [], []]
