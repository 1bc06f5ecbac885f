"""A worker's process tree is ended whole."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from pybench.engines import process as process_module
from pybench.engines.process import WorkerProcess, end_marked, processes_marked
from pybench.model.errors import MachineError

# A child in a session of its own, as torchrun starts ranks, that ignores SIGTERM and tells its pid.
STUBBORN = """
import os, signal, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True);"
     "time.sleep(600)"], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
open("ready", "w").write(str(child.pid))
time.sleep(600)
"""


def start(code: str, folder: Path) -> tuple[WorkerProcess, str]:
    token = f"test-{os.getpid()}-{time.monotonic_ns()}"
    log = folder / "worker.log"
    return WorkerProcess([sys.executable, "-c", code], os.environ, log, token), token


def test_exit_code_and_log(tmp_path: Path) -> None:
    """Standard output and error go to the log."""
    process, _ = start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)", tmp_path)
    assert process.wait(30) == 7
    assert set((tmp_path / "worker.log").read_text().split()) == {"out", "err"}


def test_wait_returns_none_while_it_runs(tmp_path: Path) -> None:
    """And a signal shows as a negative code."""
    process, token = start("import time; time.sleep(600)", tmp_path)
    assert process.wait(0.05) is None
    assert process.end() == -15
    assert not list(processes_marked(token))


def test_a_grandchild_in_its_own_session_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """A process group would miss it."""
    process, token = start(STUBBORN, tmp_path)
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    child = int((tmp_path / "ready").read_text())
    assert child in set(processes_marked(token))
    process.end()
    assert not list(processes_marked(token))


def test_ending_an_ended_process_is_no_error(tmp_path: Path) -> None:
    """The runner always ends a worker, also one that is gone."""
    process, _ = start("pass", tmp_path)
    process.wait(30)
    assert process.end() == 0


def test_a_program_that_is_not_there_raises_oserror(tmp_path: Path) -> None:
    """The attempt turns it into a record."""
    with pytest.raises(FileNotFoundError):
        WorkerProcess(["/no/such/python"], {}, tmp_path / "log", "x")


def test_a_process_that_cannot_be_killed_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits inside the kernel is named, with what to do; nothing waits for it for ever."""
    process, token = start("import time; time.sleep(600)", tmp_path)
    (pid,) = processes_marked(token)
    monkeypatch.setattr(process_module, "_signal_all", lambda _pids, _number: None)
    with pytest.raises(MachineError, match=rf"killed, but not ended within 0.1 s: process {pid} of a worker") as error:
        end_marked(token, grace_s=0.1, kill_s=0.1)
    assert f"-p {pid}`" in str(error.value)
    monkeypatch.undo()
    process.end()
