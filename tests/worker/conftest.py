"""A staged worker and orders for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pybench
from pybench.model.wire import ORDERS_FILE, Event, Header, Result, Step, WorkOrder, go_file
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import AnySettings
from pybench.run.events.reader import decode_event
from pybench.worker.ranks import OWN_PLACE
from tests.builders import TINY
from tests.ports import port_for


def points_of(events: list[Event]) -> list[list[Event]]:
    """A rank's stream in parts, one for each point: from a header to a result."""
    starts = [index for index, event in enumerate(events) if isinstance(event, Header)]
    parts = [events[start:end] for start, end in zip(starts, [*starts[1:], len(events)], strict=True)]
    assert all(isinstance(part[-1], Result) for part in parts)
    return parts


def steps_of(events: list[Event]) -> list[Step]:
    """The measured ones."""
    return [event for event in events if isinstance(event, Step) and event.phase == "measure"]


RunWorker = Callable[..., tuple[int, list[list[Event]], str]]
RunEngine = Callable[..., tuple[int, list[list[Event]], str]]


@pytest.fixture
def architecture() -> dict[str, Any]:
    """A model that a CPU runs in milliseconds."""
    return dict(TINY)


def staged(folder: Path) -> Path:
    """The worker as the launcher copies it, below a folder: itself and floor 0, nothing else.

    Compiled, which the launcher's copy is not: a worker starts in half the time.
    """
    source = Path(pybench.__file__).parent
    target = folder / "stage/pybench"
    for room in ("model", "worker"):
        shutil.copytree(source / room, target / room)
    shutil.copy(source / "__init__.py", target)
    return target.parent


def run_staged(
    stage: Path,
    settings: AnySettings,
    architecture: dict[str, Any] | None,
    ranks: int = 1,
    device: str = "cpu",
    then: tuple[AnySettings, ...] = (),
    python: str | Path = sys.executable,
    end_ns: int | None = None,
) -> tuple[int, list[list[Event]], str]:
    """Run one order, and ``then`` more, in a staged worker: exit code, events of each rank, standard error."""
    exchange = stage.parent / "exchange"
    exchange.mkdir()
    orders = [
        WorkOrder(
            point_id="tiny",
            settings=each,
            architecture=architecture,
            device=device,  # type: ignore[arg-type]
            steps=2,
            max_warmup_steps=4,
            end_ns=end_ns,
        ).to_json()
        for each in (settings, *then)
    ]
    (exchange / ORDERS_FILE).write_text("\n".join(orders))
    for place in range(1, len(orders)):
        (exchange / go_file(place)).touch()
    argv = [str(python), "-I", "-B", str(stage / "pybench/worker/__main__.py"), str(exchange)]
    argv += ["--ranks", str(ranks)] if ranks > 1 else []
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200, env=environ)
    (stage.parent / "stdout").write_text(done.stdout)
    streams = [(exchange / f"events.{rank}.jsonl") for rank in range(ranks)]
    events = [[decode_event(line) for line in s.read_text().splitlines()] for s in streams if s.exists()]
    return done.returncode, events, done.stderr


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A staged worker of the test's own."""
    return staged(tmp_path)


@pytest.fixture
def run_worker(stage: Path) -> RunWorker:
    """:func:`run_staged` with the test's own stage."""
    return partial(run_staged, stage)


@pytest.fixture
def run_engine(
    stage: Path,
    run_worker: RunWorker,
    architecture: dict[str, Any],
    fake_library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> RunEngine:
    """Run orders with an engine's stand-in on a fake driver's GPUs: exit code, events of each rank, standard error."""

    def run(
        stand_in: Path,
        recorded: Path,
        order: Generate,
        behaviour: str = "",
        devices: int = 4,
        then: tuple[Generate, ...] = (),
        python: str | Path = sys.executable,
    ) -> tuple[int, list[list[Event]], str]:
        for file in (stand_in, recorded):
            shutil.copy(file, stage)
        # A loader reads LD_LIBRARY_PATH before the first line of a Python, so of a warm one long before.
        if python != sys.executable:
            gpus = stage / "pybench/worker/gpus.py"
            gpus.write_text(gpus.read_text().replace(f'"{fake_library.name}"', f'"{fake_library}"'))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_library.parent))
        monkeypatch.setenv("FAKE_NVML_DEVICES", str(devices))
        monkeypatch.setenv("FAKE_ENGINE", behaviour)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setenv(OWN_PLACE, f"127.0.0.1 {port_for(monkeypatch)}")
        processes = order.data_parallel * order.nodes_of_replica
        return run_worker(order, architecture, processes, device="cuda", then=then, python=python)

    return run
