"""One slow rank, in earnest: a process that is stopped again and again while its neighbour works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from pybench.judge.node.checks import node_checks
from pybench.machine.environment import snapshot
from pybench.model.effort import Effort
from pybench.model.record import RankReport, Record
from pybench.model.suite import Plan, Point
from pybench.model.wire import ORDERS_FILE, Event, Header, Step, WorkOrder, decode_event
from pybench.model.workloads.matmul import Matmul
from tests.judge.conftest import Build

_POINT = Point(
    id="matmul",
    benchmark="matmul",
    axes={},
    settings=Matmul(backend="torch", gpus=2, precision="float32", m=256, n=256, k=256, products=200),
    effort=Effort(steps=4, max_warmup_steps=1),
    architecture=None,
)


def _events(exchange: Path, rank: int) -> list[Event]:
    path = exchange / f"events.{rank}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [decode_event(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _delay(exchange: Path, over: threading.Event) -> None:
    """Let rank 1 run a twentieth of the time, from its first event on."""
    while not over.is_set():
        headers = [event for event in _events(exchange, 1) if isinstance(event, Header)]
        if not headers:
            time.sleep(0.01)
            continue
        for number, length_s in ((signal.SIGSTOP, 0.19), (signal.SIGCONT, 0.01)):
            try:
                os.kill(headers[0].pid, number)
            except ProcessLookupError:
                return
            time.sleep(length_s)


def _attempt(stage: Path, folder: Path, number: int) -> Record:
    exchange = folder / f"exchange-{number}"
    exchange.mkdir()
    order = WorkOrder(
        point_id=_POINT.id,
        settings=_POINT.settings,
        architecture=None,
        device="cpu",
        steps=_POINT.effort.steps,
        max_warmup_steps=_POINT.effort.max_warmup_steps,
    )
    (exchange / ORDERS_FILE).write_text(order.to_json())
    over = threading.Event()
    thread = threading.Thread(target=_delay, args=(exchange, over))
    thread.start()
    argv = [sys.executable, "-I", "-B", str(stage / "pybench/worker/__main__.py"), str(exchange), "--ranks", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)
    over.set()
    thread.join()
    assert done.returncode == 0, done.stderr
    return Build().record(_POINT, tuple(_report(_events(exchange, rank)) for rank in range(2)), number)


def _report(events: list[Event]) -> RankReport:
    (header,) = (event for event in events if isinstance(event, Header))
    return RankReport(
        header=header, steps=tuple(event for event in events if isinstance(event, Step) and event.phase == "measure")
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_delayed_rank_is_named(stage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times slower is far from any noise of a busy machine."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    records = [_attempt(stage, tmp_path, number) for number in (1, 2)]
    (check,) = node_checks(Plan(points=(_POINT,), skips=()), records, snapshot())
    assert (check.name, check.subject, check.verdict) == ("slowest", "rank 1", "fail")
    assert check.value is not None
    assert check.value < -0.5
