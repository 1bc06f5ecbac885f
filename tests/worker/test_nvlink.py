"""Bytes over NVLink, read around the measured steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pybench.model.wire import Event, Metric, Phase, Result, Step, Work, WorkOrder
from pybench.model.workloads.train import Train
from pybench.worker import main
from pybench.worker.gpus import NvlinkTraffic
from pybench.worker.ranks import Ranks
from tests.worker.test_timing import ORDER, Steps

_SENT = """
import json, sys
from pybench.worker.gpus import nvlink_sent_bytes
print(json.dumps([nvlink_sent_bytes(uuid) for uuid in json.loads(sys.argv[1])]))
"""


def sent(library: Path, *uuids: str, **told: str) -> Any:
    """The counters that a process reads from this driver."""
    variables = {f"FAKE_NVML_{name.upper()}": value for name, value in told.items()}
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML_DEVICES": "3", **variables}
    command = [sys.executable, "-c", _SENT, json.dumps(uuids)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_drivers_counter_in_bytes(fake_library: Path, old_library: Path, tmp_path: Path) -> None:
    """It counts in KiB. A GPU that has none, an unknown GPU, an old driver and none at all leave it unknown."""
    uuids = [f"GPU-0000{index:04d}-fake-4000-8000-{index:012d}" for index in range(3)]
    found = sent(fake_library.parent, *uuids, "GPU-other", nvlink_sent_kib="5;7000000000;-1")
    assert found == [5 * 1024, 7_000_000_000 * 1024, None, None]
    assert sent(old_library.parent, uuids[0], nvlink_sent_kib="5") == [None]
    assert sent(tmp_path, uuids[0]) == [None]


def metrics(counts: dict[str, list[int | None]], num_steps: int = 4) -> tuple[Metric, ...]:
    """After all phases of an attempt; each GPU's counter is read in turn."""
    left = {uuid: iter(values) for uuid, values in counts.items()}
    traffic = NvlinkTraffic(tuple(counts), lambda uuid: next(left[uuid]))
    traffic.note(Phase(name="warmup", start_ns=0))
    traffic.note(Step(index=0, phase="warmup", start_ns=0, end_ns=1, work=Work()))
    traffic.note(Phase(name="measure", start_ns=1))
    for number in range(1, num_steps + 1):
        traffic.note(Step(index=number, phase="measure", start_ns=number, end_ns=number + 1, work=Work()))
    traffic.note(Phase(name="finish", start_ns=num_steps + 1))
    return traffic.metrics()


def test_bytes_of_a_step_are_those_of_all_gpus_of_the_rank() -> None:
    """By hand: 800 and 400 bytes in four steps."""
    assert metrics({"a": [1000, 1800], "b": [0, 400]}) == (Metric(name="nvlink_sent_bytes", value=300.0, unit="bytes"),)


@pytest.mark.parametrize("counts", [{"a": [0, 8], "b": [None, 8]}, {"a": [0, None]}, {"a": [9, 8]}, {}])
def test_an_unknown_count_is_not_zero(counts: dict[str, list[int | None]]) -> None:
    """A counter that was set back is unknown, too, and a CPU has none."""
    assert metrics(counts) == ()


class Events(list[Event]):
    """As the stream of a rank."""

    write = list.append


@pytest.mark.parametrize(("num_gpus", "reported"), [(2, True), (1, False)])
def test_counters_are_read_before_the_first_measured_step_and_after_the_last(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, reported: bool
) -> None:
    """One warm-up step, which does not count, and three more of 100 bytes. One GPU sends nothing to another."""
    events, workload = Events(), Steps(10, 10, 10, 10)

    @contextmanager
    def session(_order: WorkOrder) -> Iterator[Any]:
        yield workload

    monkeypatch.setattr(main, "NvlinkTraffic", partial(NvlinkTraffic, read=lambda _uuid: 10 * workload.now_ns))
    sizes: dict[str, Any] = {"global_batch_size": 2, "data_parallel": num_gpus}
    settings = Train(backend="torch", model="m", sequence_tokens=1, **sizes)
    order = replace(ORDER, settings=settings, steps=3)
    main.run_order(order, session, Ranks(), events, ("GPU-a",))  # type: ignore[arg-type]
    assert isinstance(events[-1], Result)
    found = [event for event in events if isinstance(event, Metric)]
    assert found == ([Metric(name="nvlink_sent_bytes", value=100.0, unit="bytes")] if reported else [])
