"""However a worker or the runner ends, no container outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.cli.progress import PlainProgress
from pybench.files.run.folder import RunFolder
from pybench.model.results import Estimate
from pybench.run.engines.base import Launch, get_engine
from pybench.run.engines.image_launcher import EXCHANGE
from pybench.run.engines.oci.launcher import ContainerWorker, OciLauncher, remove_orphans
from tests.containers.boxed_engine import Boxed, job, quick_packages, suite_text
from tests.containers.root_image import SITE
from tests.processes import settled, wait_for

pytestmark = pytest.mark.timeout(1200)
NUM_STARTS = 50


@pytest.fixture(autouse=True)
def _cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")


def start(launcher: OciLauncher, task: Launch, code: str) -> ContainerWorker:
    return ContainerWorker(launcher, task, launcher.start_argv(task, "-c", code), task.exchange.parent / "worker.log")


def leftovers(boxed: Boxed, folder: Path, started: Sequence[str]) -> dict[str, object]:
    """What starts may leave: containers, volumes, layers, processes, mounts, files with secrets, scratch files.

    A process is one whose command line names the folder, as the engine's client's does, or the id of a container that
    was ``started``, as its monitor's does: others start engines' programs, too.
    """
    volumes = subprocess.run([boxed.name, "volume", "ls", "--quiet"], capture_output=True, text=True, check=True)
    commands = {path.parent.name: read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    own = {str(os.getpid())}
    words = [word.encode() for word in (str(folder), *started)]
    storage = Path(get_engine(boxed.name).find().data_root or "/nowhere")
    return {
        "containers": boxed.containers(),
        "volumes": volumes.stdout.split(),
        "layers": {path.name for part in ("overlay2", "containers", "overlay") for path in (storage / part).glob("*")},
        "processes": {pid for pid, said in commands.items() if any(word in said for word in words)} - own,
        "mounts": [line for line in mounts().splitlines() if str(folder) in line or str(storage) in line],
        "environments": list(folder.rglob("environment")),
        "scratch": set(Path(tempfile.gettempdir()).glob("pybench-*")),
    }


def mounts() -> str:
    return Path("/proc/mounts").read_text(encoding="utf-8")


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_many_starts_leave_nothing(boxed: Boxed, launcher: OciLauncher, tmp_path: Path) -> None:
    """Fifty in a row; files that the worker wrote are the run's own."""
    before = leftovers(boxed, tmp_path, ())
    started = []
    for number in range(NUM_STARTS):
        task = job(tmp_path, number)
        worker = start(launcher, task, "print('hello')")
        wait_for(lambda worker=worker: worker.wait(0.1) is not None)  # type: ignore[misc]
        worker.end()
        found = worker.container()
        assert found is not None
        assert found.exit_code == 0
        assert (task.exchange.parent / "worker.log").read_text(encoding="utf-8") == "hello\n"
        started.append(found.id)
    # A monitor ends a moment after its container.
    assert settled(lambda: leftovers(boxed, tmp_path, started), before) == before


def test_a_worker_that_ignores_sigterm_is_killed(boxed: Boxed, launcher: OciLauncher, tmp_path: Path) -> None:
    """The exit code shows the signal."""
    task = job(tmp_path)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    worker = start(launcher, task, code)
    wait_for(lambda: "up" in (task.exchange.parent / "worker.log").read_text(encoding="utf-8"))
    worker.end()
    found = worker.container()
    assert found is not None
    assert found.exit_code == 128 + signal.SIGKILL
    assert not boxed.containers()


def test_a_signal_inside_is_told_as_one(launcher: OciLauncher, tmp_path: Path) -> None:
    """Engines say 137; the runner's word for it is -9, as without a container."""
    task = job(tmp_path)
    worker = start(launcher, task, "import ctypes; ctypes.string_at(0)")
    wait_for(lambda: worker.wait(0.1) is not None)
    assert worker.wait(0) == -signal.SIGSEGV
    worker.end()


def test_containers_of_the_living_are_left_alone(boxed: Boxed, launcher: OciLauncher, tmp_path: Path) -> None:
    """Only a dead runner's are removed, or those of the run that is being gone on with."""
    task = job(tmp_path)
    worker = start(launcher, task, "import time; time.sleep(600)")
    wait_for(boxed.containers)
    assert remove_orphans((boxed.name,), "another-run") == 0
    assert boxed.containers()
    assert remove_orphans((boxed.name,), "drill") == 1
    assert not boxed.containers()
    worker.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_runner_leaves_no_container(boxed: Boxed, tmp_path: Path, number: signal.Signals) -> None:
    """After Ctrl-C and SIGTERM at once; after SIGKILL when the run is gone on with, which then finishes."""
    packages = quick_packages(tmp_path)
    waits = f'environment = {{ QUICK_WAIT = "{EXCHANGE}/go{os.pathsep}{SITE}/go" }}'
    suite = suite_text(waits, packages=packages, attempts=3, ranks="[1]")
    (tmp_path / "boxed.toml").write_text(suite, encoding="utf-8")
    pybench = (sys.executable, "-c", "from pybench.cli.main import main; main()", "run", "--lock", str(boxed.lock))
    argv = [*pybench, str(tmp_path / "boxed.toml"), "--runs", str(tmp_path / "runs"), "--engine", boxed.name]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        (began_of(tmp_path, 1) / "go").touch()
        began_of(tmp_path, 2)
        runner.send_signal(number)
        code = runner.wait(120)
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    if number is not signal.SIGKILL:
        assert not boxed.containers()
        return
    (run,) = (tmp_path / "runs").iterdir()
    before = (run / "journal.jsonl").read_bytes()
    assert before.count(b"\n") == 1
    (packages / "go").touch()
    again = subprocess.run([*pybench, "--resume", str(run)], capture_output=True, check=False)
    assert again.returncode == 4, again.stderr  # it expects nothing
    assert not boxed.containers()
    records = RunFolder.open(run).journal.records()
    assert [(record.attempt, record.failure) for record in records] == [(1, None), (2, None), (3, None)]
    assert (run / "journal.jsonl").read_bytes().startswith(before)


def began_of(folder: Path, attempt: int) -> Path:
    """The exchange folder of an attempt, once its worker has begun."""
    begun = f"runs/*/attempts/*.{attempt}/exchange/events.0.jsonl"
    wait_for(lambda: list(folder.glob(begun)))
    return next(folder.glob(begun)).parent


def pybench_run(boxed: Boxed, folder: Path, *, attempts: int = 1) -> Result:
    """A run of a small suite in this process."""
    suite = suite_text(packages=folder / "packages", attempts=attempts, ranks="[1]")
    (folder / "boxed.toml").write_text(suite, encoding="utf-8")
    arguments = ["run", str(folder / "boxed.toml"), "--runs", str(folder / "runs"), "--engine", boxed.name]
    return CliRunner().invoke(main, [*arguments, "--lock", str(boxed.lock)])


def test_an_orphan_goes_with_the_next_start_of_any_run(boxed: Boxed, tmp_path: Path) -> None:
    """Its runner was killed, and nobody goes on with that run."""
    log = tmp_path / "killed" / "attempts" / "drill.1" / "worker.log"
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
from pathlib import Path
from pybench.run.engines.oci.launcher import ContainerWorker
from tests.containers.boxed_engine import Boxed, job
boxed = Boxed({boxed.name!r}, Path({str(boxed.lock)!r}), {boxed.image_id!r})
task, launcher = job(Path({str(tmp_path / "killed")!r})), boxed.launcher()
argv = launcher.start_argv(task, "-c", "import time; print('up', flush=True); time.sleep(3600)")
ContainerWorker(launcher, task, argv, Path({str(log)!r})).wait(3600)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as runner:
        wait_for(lambda: log.exists() and "up" in log.read_text(encoding="utf-8"))
        runner.kill()
    assert len(boxed.containers()) == 1
    quick_packages(tmp_path)
    result = pybench_run(boxed, tmp_path)
    assert result.exit_code == 4, result.output
    assert not boxed.containers()


def test_an_engine_that_goes_down_midway(boxed: Boxed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No failed attempt is recorded; measured points stay, and the run continues once it is back."""
    if boxed.name != "docker":
        pytest.skip(f"{boxed.name} has no daemon that could be down")
    quick_packages(tmp_path)
    finished = PlainProgress.attempt_finished

    def lose_it(progress: PlainProgress, point_id: str, outcome: str, ok: bool, figure: Estimate | None = None) -> None:
        finished(progress, point_id, outcome, ok, figure)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")

    monkeypatch.setattr(PlainProgress, "attempt_finished", lose_it)
    result = pybench_run(boxed, tmp_path, attempts=2)
    assert result.exit_code == 3, result.output
    (run,) = (tmp_path / "runs").iterdir()
    last = result.stderr.splitlines()[-1]
    assert last.startswith("pybench: the docker daemon doesn't answer: ")
    assert last.endswith(f"; start it, then: pybench run --resume {run}")
    assert len(RunFolder.open(run).journal.records()) == 1
    down = pybench_run(boxed, tmp_path)
    assert down.exit_code == 3
    assert "install or start it, choose another --engine, or run without containers: --engine none" in down.stderr
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setattr(PlainProgress, "attempt_finished", finished)
    assert CliRunner().invoke(main, ["run", "--resume", str(run), "--lock", str(boxed.lock)]).exit_code == 4
    assert [record.failure for record in RunFolder.open(run).journal.records()] == [None, None]
