"""However a worker or the runner ends, no container outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.launch.job import Job
from pybench.runner.container import ContainerWorker, remove_orphans
from tests.containers.boxed_engine import Boxed, job, suite_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
NUM_STARTS = 50


def start(boxed: Boxed, task: Job, code: str) -> ContainerWorker:
    launcher = boxed.launcher()
    return ContainerWorker(launcher, task, launcher.run_argv(task, "-c", code), task.exchange.parent / "worker.log")


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it didn't happen within two minutes"
        time.sleep(0.05)


def leftovers(boxed: Boxed, folder: Path) -> dict[str, object]:
    """What starts may leave: containers, volumes, processes and mounts that know the folder, files with secrets."""
    volumes = subprocess.run([boxed.name, "volume", "ls", "--quiet"], capture_output=True, text=True, check=True)
    commands = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in read(path)]
    return {
        "containers": boxed.containers(),
        "volumes": volumes.stdout.split(),
        "processes": [path.parent.name for path in commands if path.parent.name != str(os.getpid())],
        "mounts": str(folder) in Path("/proc/mounts").read_text(encoding="utf-8"),
        "environments": list(folder.rglob("environment")),
    }


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_many_starts_leave_nothing(boxed: Boxed, tmp_path: Path) -> None:
    """Fifty in a row; files that the worker wrote are the run's own."""
    launcher = boxed.launcher()
    before = leftovers(boxed, tmp_path)
    for number in range(NUM_STARTS):
        task = job(tmp_path, number)
        worker = ContainerWorker(
            launcher, task, launcher.run_argv(task, "-c", "print('hello')"), task.exchange.parent / "worker.log"
        )
        wait_for(lambda worker=worker: worker.wait(0.1) is not None)  # type: ignore[misc]
        worker.end()
        assert worker.container is not None
        assert worker.container.exit_code == 0
        assert (task.exchange.parent / "worker.log").read_text(encoding="utf-8") == "hello\n"
    assert leftovers(boxed, tmp_path) == before


def test_a_worker_that_ignores_sigterm_is_killed(boxed: Boxed, tmp_path: Path) -> None:
    """Stop, then kill: its exit code says by what."""
    task = job(tmp_path)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    worker = start(boxed, task, code)
    wait_for(lambda: "up" in (task.exchange.parent / "worker.log").read_text(encoding="utf-8"))
    worker.end()
    assert worker.container is not None
    assert worker.container.exit_code == 128 + signal.SIGKILL
    assert not boxed.containers()


def test_a_signal_inside_is_told_as_one(boxed: Boxed, tmp_path: Path) -> None:
    """Engines say 137; the runner's word for it is -9, as without a container."""
    task = job(tmp_path)
    worker = start(boxed, task, "import ctypes; ctypes.string_at(0)")
    wait_for(lambda: worker.wait(0.1) is not None)
    assert worker.wait(0) == -signal.SIGSEGV
    worker.end()


def test_containers_of_the_living_are_left_alone(boxed: Boxed, tmp_path: Path) -> None:
    """Only a dead runner's are removed, or those of the run that is being gone on with."""
    task = job(tmp_path)
    worker = start(boxed, task, "import time; time.sleep(600)")
    wait_for(boxed.containers)
    assert remove_orphans((boxed.name,), "another-run") == 0
    assert boxed.containers()
    assert remove_orphans((boxed.name,), "drill") == 1
    assert not boxed.containers()
    worker.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_runner_leaves_no_container(boxed: Boxed, tmp_path: Path, number: signal.Signals) -> None:
    """After Ctrl-C and SIGTERM at once; after SIGKILL when the next runner starts."""
    (tmp_path / "boxed.toml").write_text(suite_text(attempts=3, ranks="[1]"), encoding="utf-8")
    argv = [
        *(sys.executable, "-c", "from pybench.cli.main import main; main()", "run", str(tmp_path / "boxed.toml")),
        *("--runs", str(tmp_path / "runs"), "--engine", boxed.name, "--lock", str(boxed.lock)),
    ]
    environment = {**os.environ, "PYBENCH_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        wait_for(lambda: list((tmp_path / "runs").glob("*/attempts/*.1/exchange/events.0.jsonl")))
        runner.send_signal(number)
        code = runner.wait(120)
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    if number is signal.SIGKILL:
        remove_orphans((boxed.name,), "another-run")
    assert not boxed.containers()
