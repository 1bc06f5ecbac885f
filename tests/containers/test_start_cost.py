"""Time that a container adds to the start of a worker and of a point: each engine against engine none."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pybench.cli.progress import PlainProgress
from pybench.model.container import ContainerRequest, Mount
from pybench.run.engines.base import Argv, Launch, Launcher
from pybench.run.engines.local import Local
from pybench.run.engines.oci.launcher import ContainerWorker
from pybench.run.engines.process import Worker, WorkerProcess
from pybench.run.prepare import prepare_run
from tests.containers.boxed_engine import Boxed, job, site_packages, suite_text
from tests.containers.root_image import SITE

ROUNDS = 20
ABBA_ROUNDS = 5
GROUP = "worker start and end"


def log_of(task: Launch) -> Path:
    return task.exchange.parent / "worker.log"


def start_and_end(start: Callable[[], Worker]) -> None:
    worker = start()
    while worker.wait(10) is None:
        pass
    worker.end()


@pytest.mark.benchmark(group=GROUP)
def test_in_a_container(boxed: Boxed, tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    """Environment file, start, end, read-back and removal."""
    launcher, task = boxed.launcher(), job(tmp_path)
    argv = launcher.start_argv(task, "-I", "-B", "-c", "pass")

    def start() -> Worker:
        return ContainerWorker(launcher, task, argv, log_of(task))

    benchmark.pedantic(start_and_end, (start,), rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.benchmark(group=GROUP)
def test_in_none(tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    """The same Python, started directly."""
    launcher, task = Local(), job(tmp_path)
    argv: Argv = (launcher.python, "-I", "-B", "-c", "pass")

    def start() -> Worker:
        return WorkerProcess(argv, launcher.environment(task), log_of(task), task.token)

    benchmark.pedantic(start_and_end, (start,), rounds=ROUNDS, warmup_rounds=1)


def startup_s(suite: Path, launcher: Launcher) -> float:
    """From the launch of a real point's worker to its first warm-up step."""
    run = prepare_run(suite, suite.parent / "runs", lambda _asked: launcher)
    run.finish(PlainProgress(io.StringIO()))
    (record,) = run.folder.journal.records()
    assert record.failure is None
    assert record.startup_s is not None
    return record.startup_s


@pytest.mark.timeout(3600)
def test_a_whole_point(
    boxed: Boxed,
    tmp_path: Path,
    benchmark: BenchmarkFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The torch backend on one core, A-B-B-A: loading torch is in both, the container in one."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
    suite = tmp_path / "boxed.toml"
    suite.write_text(suite_text(ranks="[1]"), encoding="utf-8")
    mounts = (Mount(source=str(site_packages()), target=SITE),)
    engine = boxed.launcher(ContainerRequest(mounts=mounts))
    order: tuple[Launcher, ...] = (Local(), engine, engine, Local())
    found: dict[str, list[float]] = {"none": [], boxed.name: []}

    def abba() -> None:
        for launcher in order:
            found[launcher.name].append(startup_s(suite, launcher))

    abba()  # what is read for the first time comes from the disk
    for values in found.values():
        values.clear()
    benchmark.pedantic(abba, rounds=ABBA_ROUNDS)
    medians = {name: round(statistics.median(values), 3) for name, values in found.items()}
    added_s = medians[boxed.name] - medians["none"]
    benchmark.extra_info |= {**medians, "added_s": added_s}
    with capsys.disabled():
        spans = {name: f"{min(values):.2f} to {max(values):.2f}" for name, values in found.items()}
        print(f"\nstart-up of a point, medians of {2 * ABBA_ROUNDS}: {medians} s ({spans}); added: {added_s:.2f} s")
