"""A program that this process runs ends with it, with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pybench.machine.command import guarded_argv, run_command
from tests.golden_sentences import sentences_of
from tests.processes import wait_for

SENTENCES = sentences_of("machine.command")

HOST = "import sys; from pybench.machine.command import run_command; run_command(sys.argv[2:], outlives={outlives})"
# A program that starts another, whose session is its own and which no parent waits for, and writes its id at last.
SCRIPT = "(setsid sleep 600 >/dev/null 2>&1 & echo $! > {0}.new); mv {0}.new {0}"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def started(file: Path) -> int:
    wait_for(file.exists, 60)
    return int(file.read_text())


@pytest.mark.parametrize("outlives", [False, True])
def test_a_killed_host(tmp_path: Path, *, outlives: bool) -> None:
    """Its program and its daemons end; a program that cleans up goes on."""
    file = tmp_path / "pid"
    argv = ("sh", "-c", f"echo $$ > {tmp_path}/own; {SCRIPT.format(file)}; exec sleep 600")
    with subprocess.Popen((sys.executable, "-c", HOST.format(outlives=outlives), str(tmp_path), *argv)) as host:
        pids = (started(file), int((tmp_path / "own").read_text()))
        host.kill()
    try:
        if not outlives:
            wait_for(lambda: not any(map(is_alive, pids)), 60)
        assert [is_alive(pid) for pid in pids] == [outlives, outlives]
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_takes_too_long_ends_with_what_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    result = run_command(("sh", "-c", f"{SCRIPT.format(file)}; sleep 600"), limit_s=1.0)
    assert result.error_line == SENTENCES["a_program_that_takes_too_long_ends"]
    # On a machine so slow that nothing was started, there is nothing to be left.
    assert not file.exists() or not is_alive(int(file.read_text()))


def test_what_a_program_leaves_stays(tmp_path: Path) -> None:
    """Such as the monitor of a container: the program ended well."""
    file = tmp_path / "pid"
    assert run_command(("sh", "-c", SCRIPT.format(file))).ok
    assert is_alive(int(file.read_text()))
    os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "code"), [("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15), ("kill -13 $$", -13)]
)
def test_a_program_ends_as_it_would_alone(end: str, code: int) -> None:
    """Python ignores SIGPIPE; a program that it starts does not."""
    assert run_command(("sh", "-c", end)).code == code


def test_a_program_ignores_what_this_process_was_started_to_ignore() -> None:
    """As below nohup."""
    code = "import sys; from pybench.machine.command import run_command; sys.exit(run_command(sys.argv[1:]).code)"
    argv = ("sh", "-c", "kill -HUP $$; exit 7")
    ignored = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", code, *argv)
    assert subprocess.run(ignored, check=False).returncode == 7


def test_a_program_that_is_no_program(tmp_path: Path) -> None:
    """The reason is its output's last line."""
    (tmp_path / "file").write_bytes(b"\0\0")
    (tmp_path / "file").chmod(0o755)
    result = run_command((str(tmp_path / "file"),))
    assert (result.ok, result.error_line) == (False, f"{tmp_path}/file: Exec format error")


def test_a_guardian_whose_parent_is_another_starts_nothing(tmp_path: Path) -> None:
    """The process that started it died before the kernel was set to report it."""
    argv = guarded_argv(("touch", str(tmp_path / "file")))
    assert subprocess.run(("sh", "-c", '"$@"; exit $?', "sh", *argv), check=False).returncode == 1
    assert not (tmp_path / "file").exists()
