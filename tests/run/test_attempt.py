"""Calls of the power sampler while an attempt's worker runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybench.model.wire import Event, Phase, Result
from pybench.run import gpu_observation
from pybench.run.attempt import Session, follow
from pybench.run.events.reader import RankLog
from pybench.run.gpu_observation import GpuObservation


class Sampler:
    """Counts anchors."""

    num_anchors = 0

    def anchor(self) -> None:
        self.num_anchors += 1

    def latest_power_w(self) -> dict[str, float | None]:
        return {"GPU-0": 400.0}


class Reader:
    """Says each batch of events once, of two ranks."""

    def __init__(self, *batches: list[tuple[int, Event]]) -> None:
        self._batches = list(batches)
        self.points = [[RankLog(result=Result(warmup_steps=3, steady=True)) for _ in range(2)]]

    def poll(self) -> list[tuple[int, Event]]:
        return self._batches.pop(0) if self._batches else []


def watch(monkeypatch: pytest.MonkeyPatch, *batches: list[tuple[int, Event]]) -> int:
    sampler, codes = Sampler(), [*[None] * len(batches), 0]
    worker: Any = SimpleNamespace(wait=lambda _s: codes.pop(0), end=lambda: None)
    point: Any = SimpleNamespace(effort=SimpleNamespace(time_limit_s=60))
    silent: Any = SimpleNamespace(phase=lambda _n: None, power=lambda _w: None)
    reader: Any = Reader(*batches)
    anything: Any = None
    session = Session(
        run_path=Path(),
        attempts=((point, 1),),
        orders=(),
        folders=(Path(),),
        job=anything,
        launcher=anything,
        sites=(),
        power_reason=None,
    )
    monkeypatch.setattr(gpu_observation, "PowerRecorder", lambda _uuids: sampler)
    gpus = GpuObservation(("GPU-0",), with_power=True)
    assert follow(session, 0, worker, reader, gpus, silent) is None
    return sampler.num_anchors


def test_the_counter_is_read_where_the_measurement_begins_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def phases(name: Any) -> list[tuple[int, Event]]:
        return [(rank, Phase(name=name, start_ns=1)) for rank in range(2)]

    assert watch(monkeypatch, phases("prepare"), phases("warmup")) == 0
    assert watch(monkeypatch, phases("warmup"), phases("measure"), phases("finish")) == 2
