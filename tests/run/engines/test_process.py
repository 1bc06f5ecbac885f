"""A worker's process tree is ended whole."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pybench.machine.command import is_program
from pybench.model.errors import MachineError
from pybench.run.engines import process as process_module
from pybench.run.engines.process import WorkerProcess, end_marked, log_tail, processes_marked
from tests.processes import wait_for

# A child in a session of its own, as torchrun starts ranks, that ignores SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True);"
     "time.sleep(600)"], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
open("pid.new", "w").write(str(child.pid))
os.rename("pid.new", "pid")
time.sleep(600)
"""
# A daemon: its parent has ended, its session and its environment are its own.
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("pid.new", "w").write(str(os.getpid()))
        os.rename("pid.new", "pid")
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
while not os.path.exists("pid"):
    time.sleep(0.01)
"""


def start(code: str, folder: Path, *, guarded: bool = False) -> tuple[WorkerProcess, str]:
    token = f"test-{os.getpid()}-{time.monotonic_ns()}"
    log = folder / "worker.log"
    return WorkerProcess([sys.executable, "-c", code], os.environ, log, token, guarded=guarded), token


def child_of(folder: Path) -> int:
    """Id that the process started there has written."""
    wait_for((folder / "pid").exists, 30)
    return int((folder / "pid").read_text())


def daemon_of(folder: Path, token: str) -> int:
    """The same, once no mark shows the process: until its exec is over it has its parent's environment."""
    daemon = child_of(folder)
    wait_for(lambda: daemon not in set(processes_marked(token)), 30)
    return daemon


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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


def test_a_log_that_is_a_link_or_a_pipe_is_neither_written_nor_read(tmp_path: Path) -> None:
    """A worker, or the folder's owner, may put a link or a pipe in its place."""
    other, link, pipe = (tmp_path / name for name in ("other", "link", "pipe"))
    other.write_text("kept\n")
    link.symlink_to(other)
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        WorkerProcess([sys.executable, "-c", "pass"], os.environ, link, "x")
    assert other.read_text() == "kept\n"
    assert [log_tail(path) for path in (link, pipe, other)] == ["", "", "kept"]


def test_a_grandchild_in_its_own_session_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """A process group would miss it."""
    process, token = start(STUBBORN, tmp_path)
    child = child_of(tmp_path)
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
    """A process that waits inside the kernel is named with a remedy, after a limit."""
    process, token = start("import time; time.sleep(600)", tmp_path)
    wait_for(lambda: any(processes_marked(token)), 30)  # the kernel shows no environment until the exec is over
    (pid,) = processes_marked(token)
    monkeypatch.setattr(process_module, "_signal_all", lambda _pids, _number: None)
    with pytest.raises(MachineError, match=rf"killed, but not ended within 0.1 s: process {pid} of a worker") as error:
        end_marked(token, grace_s=0.1, kill_s=0.1)
    assert f"-p {pid}`" in str(error.value)
    monkeypatch.setattr(process_module, "_AGAIN_S", 0.0)
    with pytest.raises(MachineError, match="killed, but not ended"):  # at once, whatever the limits are
        end_marked(token, grace_s=3600, kill_s=3600)
    monkeypatch.undo()
    process.end()


@pytest.mark.parametrize(
    ("code", "ended_with"), [("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9), ("1 / 0", 1)]
)
def test_a_guarded_process_ends_as_it_would_alone(tmp_path: Path, code: str, ended_with: int) -> None:
    process, _ = start(code, tmp_path, guarded=True)
    assert process.wait(30) == ended_with
    assert process.end() == ended_with


def test_a_guarded_process_that_is_ended(tmp_path: Path) -> None:
    process, token = start("print(1, flush=True); import time; time.sleep(600)", tmp_path, guarded=True)
    wait_for((tmp_path / "worker.log").read_text, 30)
    assert process.end() == -15
    assert not list(processes_marked(token))


def test_a_daemon_with_a_clean_environment_ends_with_its_worker(tmp_path: Path) -> None:
    process, token = start(DAEMON, tmp_path, guarded=True)
    assert process.wait(30) == 0
    assert not is_alive(child_of(tmp_path))
    assert not list(processes_marked(token))
    process.end()  # until then this process adopts what its children leave, also those of later tests


# A worker that attacks its guardian, which is its parent, and leaves a daemon that no mark shows.
ATTACK = """
import os, signal, time
os.kill(os.getppid(), signal.{signal})
if os.fork() == 0:
    os.setsid()
    open("pid.new", "w").write(str(os.getpid()))
    os.rename("pid.new", "pid")
    os.execve("/bin/sleep", ["sleep", "600"], {{}})
time.sleep(600)
"""


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP"])
def test_a_worker_that_attacks_its_guardian_leaves_no_daemon(
    tmp_path: Path, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner adopts the daemon, and kills it."""
    monkeypatch.setattr(process_module, "GRACE_S", 0.2)
    process, token = start(ATTACK.format(signal=number), tmp_path, guarded=True)
    daemon = daemon_of(tmp_path, token)
    assert process.end() == -9
    assert not is_alive(daemon)


def test_programs_of_this_process_are_not_a_workers(tmp_path: Path) -> None:
    """Programs that it started before the worker, or starts beside it."""
    before = subprocess.Popen(["sleep", "600"], start_new_session=True)
    process, token = start(ATTACK.format(signal="SIGKILL"), tmp_path, guarded=True)
    beside = subprocess.Popen(["sleep", "600"])
    try:
        daemon_of(tmp_path, token)
        process.end()
        assert (before.poll(), beside.poll()) == (None, None)
    finally:
        for program in (before, beside):
            program.kill()
            program.wait()


def test_an_adopted_process_that_cannot_be_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for it for ever."""
    monkeypatch.setattr(process_module, "KILL_S", 0.1)
    process, token = start(ATTACK.format(signal="SIGKILL"), tmp_path, guarded=True)
    daemon = daemon_of(tmp_path, token)
    end_marked(token)
    kill = os.kill
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: None if pid == daemon else kill(pid, number))
        with pytest.raises(MachineError, match=f"killed, but not ended within 0.1 s: process {daemon} of a worker"):
            process.end()
    os.kill(daemon, 9)
    os.waitpid(daemon, 0)


def test_a_program_on_a_faulty_disk_is_not_taken_for_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(OSError, match="Input/output error"):
        is_program(str(tmp_path / "python"))


def test_a_folder_is_no_program(tmp_path: Path) -> None:
    """A file without the right to execute is no program."""
    (tmp_path / "file").touch(mode=0o644)
    found = [is_program(str(path)) for path in (tmp_path, tmp_path / "file", tmp_path / "absent", Path(sys.executable))]
    assert found == [False, False, False, True]


def test_without_a_guardian_such_a_daemon_stays(tmp_path: Path) -> None:
    """As it would: the test above can fail."""
    process, token = start(DAEMON, tmp_path)
    assert process.wait(30) == 0
    daemon = daemon_of(tmp_path, token)
    process.end()
    assert is_alive(daemon)
    os.kill(daemon, 9)


def test_a_guarded_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        WorkerProcess(["/no/such/python"], {}, tmp_path / "log", "x", guarded=True)
