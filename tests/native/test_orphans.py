"""A host that is killed at any moment leaves no worker behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybench.run.engines.process import end_marked, processes_marked
from tests.programs import shell_program
from tests.worker.conftest import staged

KILLS = 100
LONGEST_S = 0.4
# A host for each line: a fork of this process, as starting a Python each takes longer than the host lives.
HOSTS = """
import os, sys, time
from pathlib import Path
from pybench.run.engines.base import Launch
from pybench.run.engines.local import Local
from pybench.model.machine import Place
from pybench.worker.process import die_with_parent

def be_host(exchange, token, python):
    die_with_parent()
    folder = exchange.parent
    exchange.mkdir()
    (exchange / "orders.jsonl").write_text((folder / "orders.jsonl").read_text())
    job = Launch(stage=folder / "stage", exchange=exchange, backend="torch", num_processes=1, places=(Place(),),
              token=token, host_environment=dict(os.environ))
    print(os.getpid(), flush=True)
    worker = Local(python).start(job, exchange / "log")
    time.sleep(600)

while line := sys.stdin.readline():
    exchange, token, python = line.split()
    if os.fork() == 0:
        be_host(Path(exchange), token, python)
    os.wait()
"""
ORDER = """
{"point_id": "p", "settings": {"workload": "burn", "backend": "torch"}, "architecture": null, "device": "cpu",
"steps": 1, "max_warmup_steps": 1, "dither_ms": 0, "protocol": 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A worker that runs for ten minutes."""
    staged(tmp_path)
    entry = tmp_path / "stage" / "pybench" / "worker" / "backends" / "torch" / "entry.py"
    entry.write_text("import time\ndef join(order):\n    time.sleep(600)\n")
    (tmp_path / "orders.jsonl").write_text(ORDER.replace("\n", "") + "\n")
    return tmp_path


@pytest.fixture
def start_host(folder: Path) -> Iterator[Callable[..., int]]:
    """Start a host by the name of its exchange folder, the token of its worker and its worker's Python: its id."""
    command = (sys.executable, "-c", HOSTS)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hosts:
        assert hosts.stdin is not None
        assert hosts.stdout is not None
        orders, ids = hosts.stdin, hosts.stdout

        def start(name: str, token: str, python: str = sys.executable) -> int:
            orders.write(f"{folder / name} {token} {python}\n")
            orders.flush()
            return int(ids.readline())

        yield start
        hosts.kill()


def test_no_orphan_of_100_killed_hosts(start_host: Callable[..., int]) -> None:
    """SIGKILL at 100 moments from a fixed seed, from before the worker's start to long after it."""
    numbers = random.Random(1)
    for kill in range(KILLS):
        token = f"orphans-{os.getpid()}-{kill}/"
        host = start_host(f"exchange{kill}", token)
        time.sleep(numbers.random() * LONGEST_S)
        os.kill(host, signal.SIGKILL)
        # A worker that is still starting ends as soon as it looks for its host.
        deadline = time.monotonic() + 30
        while (left := tuple(processes_marked(token))) and time.monotonic() < deadline:
            time.sleep(0.01)
        end_marked(token)
        assert not left, f"kill {kill}"


DAEMON = """
import os, pathlib, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path({file!r}).write_text(str(os.getpid()))
        os.execve("/bin/sleep", ["sleep", "600"], {{}})
    os._exit(0)
time.sleep(600)
"""


def test_a_daemon_with_a_clean_environment_ends_with_a_killed_host(
    folder: Path, start_host: Callable[..., int]
) -> None:
    """It left its parent, its session and its mark; the host's guardian holds it all the same."""
    file = folder / "daemon"
    entry = folder / "stage" / "pybench" / "worker" / "backends" / "torch" / "entry.py"
    entry.write_text(DAEMON.format(file=str(file)))
    host = start_host("exchange", f"daemon-{os.getpid()}/")
    deadline, daemon = time.monotonic() + 60, 0
    # Between fork and exec it has a command line of another, or none.
    while "sleep" not in _command_line(daemon) and time.monotonic() < deadline:
        daemon = int(file.read_text() or 0) if file.exists() else 0
        time.sleep(0.01)
    os.kill(host, signal.SIGKILL)
    assert daemon, "the daemon began"
    deadline = time.monotonic() + 30
    while Path(f"/proc/{daemon}/cmdline").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _command_line(daemon)


def test_a_shell_between_host_and_worker_is_no_stranger(folder: Path, start_host: Callable[..., int]) -> None:
    """``--python`` may name a script that starts Python: its worker runs, and knows its host."""
    python = shell_program(folder / "python", f'"{sys.executable}" "$@"\nexit 0')
    token = f"shell-{os.getpid()}/"
    began = folder / "began"
    entry = folder / "stage" / "pybench" / "worker" / "backends" / "torch" / "entry.py"
    entry.write_text(f"import pathlib, time\npathlib.Path({str(began)!r}).touch()\ntime.sleep(600)\n")
    host = start_host("exchange", token, str(python))
    deadline = time.monotonic() + 60
    # The worker looks for its host before it imports its backend.
    while not began.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(host, signal.SIGKILL)
    end_marked(token)
    assert began.exists()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
