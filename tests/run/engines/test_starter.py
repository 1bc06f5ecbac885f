"""Workers that are forks of a starter, with a backend that writes what it sees instead of measuring."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, cast

import pytest

from pybench.model.machine import Place
from pybench.run.engines.base import Launch
from pybench.run.engines.local import Local
from pybench.run.engines.process import WorkerProcess, processes_marked
from pybench.run.engines.starter import COLD_VARIABLE, ForkedWorker, Starter
from tests.worker.conftest import staged

ORDER = (
    '{"point_id": "p", "settings": {"workload": "matmul", "backend": "torch"}, "architecture": null, '
    '"device": "cpu", "steps": 1, "max_warmup_steps": 1, "dither_ms": 0, "protocol": 2}\n'
)
# The backend of the stage: join is what a rank calls first.
ENTRY = """
import os, sys, time
IMPORTED_BY = os.getpid()
STATE = []
{at_import}
def join(order):
    STATE.append(os.getpid())
    print("imported by", IMPORTED_BY, "runs in", os.getpid(), "state", len(STATE), flush=True)
    {work}
    os._exit({code})
"""
PATIENCE_S = 60.0


class Stage:
    """A staged worker whose backend is ``ENTRY``, and jobs for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = Local(sys.executable)
        self.token = f"starter-{os.getpid()}-{folder.name}"
        staged(folder)

    def backend(self, work: str = "", code: int = 0, at_import: str = "") -> None:
        """Behaviour of the backend."""
        entry = self.folder / "stage" / "pybench" / "worker" / "backends" / "torch" / "entry.py"
        entry.write_text(ENTRY.format(work=work, code=code, at_import=at_import))

    def start(self, number: int, num_processes: int = 1, **environment: str) -> WorkerProcess | ForkedWorker:
        """Attempt ``number``."""
        exchange = self.folder / f"attempt{number}" / "exchange"
        exchange.mkdir(parents=True)
        (exchange / "orders.jsonl").write_text(ORDER)
        job = Launch(
            stage=self.folder / "stage",
            exchange=exchange,
            backend="torch",
            num_processes=num_processes,
            places=(Place(),),
            token=f"{self.token}/{number}",
            host_environment={**os.environ, **environment},
        )
        return self.launcher.start(job, exchange.parent / "worker.log")

    def log(self, number: int) -> str:
        """The attempt's output."""
        return (self.folder / f"attempt{number}" / "worker.log").read_text()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.launcher.close()
    assert tuple(processes_marked(made.token)) == ()


def _code(worker: WorkerProcess | ForkedWorker) -> int:
    code = worker.wait(PATIENCE_S)
    assert code is not None
    worker.end()
    return code


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert done()


def test_attempts_are_processes_of_one_import(stage: Stage) -> None:
    """Two attempts: one process imported, two others ran, and the second sees nothing that the first did."""
    stage.backend()
    assert [_code(stage.start(number)) for number in (1, 2)] == [0, 0]
    words = [stage.log(number).split() for number in (1, 2)]
    assert words[0][2] == words[1][2]
    assert len({words[0][2], words[0][5], words[1][5]}) == 3
    assert [word[-1] for word in words] == ["1", "1"]


def test_ranks_are_forks_too(stage: Stage) -> None:
    """Each has its number in the environment, and all were imported once."""
    stage.backend(work='print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)')
    assert _code(stage.start(1, num_processes=3)) == 0
    lines = stage.log(1).splitlines()
    assert sorted(line for line in lines if line.startswith("rank")) == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]
    assert len({line.split()[2] for line in lines if line.startswith("imported")}) == 1


def test_a_worker_has_its_own_environment(stage: Stage) -> None:
    """State of one attempt reaches neither the next one nor the starter."""
    stage.launcher = Local(sys.executable, secrets=("HF_TOKEN",))
    stage.backend(work='print("token", os.environ.get("HF_TOKEN"), os.environ.get("PYBENCH_ROOM"), flush=True)')
    _code(stage.start(1, HF_TOKEN="s3cret"))
    _code(stage.start(2))
    assert "token s3cret None" in stage.log(1)
    assert "token None None" in stage.log(2)


def test_what_a_worker_spawns_begins_in_its_folder(stage: Stage) -> None:
    """Python starts spawned children in the folder that the process had when it was imported."""
    stage.backend(
        at_import="import multiprocessing.process",
        work='from multiprocessing.spawn import get_preparation_data as x; print("dir", x("")["dir"], flush=True)',
    )
    assert _code(stage.start(1)) == 0
    assert f"dir {stage.folder / 'attempt1'}\n" in stage.log(1)


def test_a_crash_ends_one_attempt_alone(stage: Stage) -> None:
    """A worker that is killed, or leaves a code, is reported so; the next one runs."""
    stage.backend(work='os.kill(os.getpid(), 9) if "attempt1" in os.getcwd() else None', code=3)
    assert _code(stage.start(1)) == -signal.SIGKILL
    assert _code(stage.start(2)) == 3


def test_a_daemon_ends_with_its_attempt(stage: Stage) -> None:
    """It left parent, session and environment, and is killed before the attempt counts as ended."""
    daemon = (
        "(os.fork() == 0 and (os.setsid(), os.fork() and os._exit(0), "
        "os.execve('/bin/sleep', ['sleep', '600'], {}))); time.sleep(0.3)"
    )
    stage.backend(work=daemon + "; print('daemon', flush=True)")
    worker = stage.start(1)
    assert _code(worker) == 0
    sleeping = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _command_line(p) == b"sleep\0600\0"]
    assert [path for path in sleeping if f"{stage.folder}" in _cwd(path)] == []


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _cwd(process: Path) -> str:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""


def test_variables_that_an_import_sets_reach_every_worker(stage: Stage) -> None:
    """As in a process that imports itself: vLLM sets some of torch's. The import's threads do not reach the fork."""
    stage.backend(
        at_import="os.environ['BY_IMPORT'] = 'yes'",
        work="print(*(os.environ.get(n) for n in ('BY_IMPORT', 'OPENBLAS_NUM_THREADS')), flush=True)",
    )
    for number in (1, 2):
        assert _code(stage.start(number)) == 0
        assert stage.log(number).splitlines()[-1] == f"yes {os.environ.get('OPENBLAS_NUM_THREADS')}"


def test_an_attempt_can_be_ended(stage: Stage) -> None:
    """While it works, and while its libraries are imported; the next one starts."""
    stage.backend(work="time.sleep(600)")
    worker = stage.start(1)
    _until(lambda: "runs in" in stage.log(1))
    worker.end()
    stage.launcher.close()
    stage.backend(at_import="print('imports', flush=True); time.sleep(600)")
    worker = stage.start(2)
    _until(lambda: "imports" in stage.log(2))
    worker.end()
    stage.launcher.close()
    stage.backend()
    assert _code(stage.start(3)) == 0


@pytest.mark.parametrize(
    "at_import",
    ["import threading; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "os._exit(1)"],
    ids=["a thread", "an end"],
)
def test_what_can_not_be_forked_starts_alone(stage: Stage, at_import: str) -> None:
    """A library that starts a thread, and a starter that ends, cost nothing but the time of the import."""
    once = f"if '--starter' in sys.argv: {at_import}"
    stage.backend(at_import=once)
    worker = stage.start(1)
    assert _code(worker) == 0
    assert isinstance(worker, ForkedWorker)
    assert worker.start.startswith("alone: ")


def test_a_starter_that_is_killed_ends_its_worker(stage: Stage) -> None:
    """The attempt fails, and the next one starts alone."""
    stage.backend(work="time.sleep(600) if 'attempt1' in os.getcwd() else None")
    worker = stage.start(1)
    _until(lambda: "runs in" in stage.log(1))
    os.kill(int(stage.log(1).split()[2]), signal.SIGKILL)
    assert _code(worker) == 1
    assert _code(stage.start(2)) == 0


def test_cold_starts_can_be_asked_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a worker is a process of its own, which imports."""
    monkeypatch.setenv(COLD_VARIABLE, "1")
    stage.launcher = Local(sys.executable)
    stage.backend()
    worker = stage.start(1)
    assert isinstance(worker, WorkerProcess)
    assert _code(worker) == 0
    words = stage.log(1).split()
    assert words[2] == words[5]


def test_a_worker_that_ended_before_its_number_arrived_has_its_code() -> None:
    """Its process is gone by then, so there is nothing to open."""

    class Gone:
        words: ClassVar[list[dict[str, object]]] = [{"pid": 2**22 + 1}, {"status": 7 << 8}]

        def next_words(self, _timeout_s: float) -> dict[str, object]:
            return self.words.pop(0)

    worker = ForkedWorker(cast("Starter", Gone()), "token", _never)
    assert worker.wait(1.0) == 7


def _never() -> WorkerProcess:
    raise AssertionError
