"""What is shown of a worker while it is followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from pybench.model.effort import Effort
from pybench.model.progress import Progress
from pybench.model.wire import Phase, Result, Step, Work, encode_event
from pybench.runner.events.reader import EventReader
from pybench.runner.follow import follow
from tests.builders import HEADER


@pytest.mark.parametrize(("replicas", "rate"), [((0, 0), 100.0), ((0, 1), 200.0)])
def test_copies_rates_add_up(tmp_path: Path, replicas: tuple[int, int], rate: float) -> None:
    """Two ranks of one model tell of the same tokens, two copies of their own."""
    for rank, replica in enumerate(replicas):
        events = (
            replace(HEADER, rank=rank, world_size=2, replica=replica),
            Phase(name="measure", start_ns=0),
            Step(index=0, phase="measure", start_ns=0, end_ns=10**9, work=Work(output_tokens=100)),
            Result(warmup_steps=0, steady=True),
        )
        (tmp_path / f"events.{rank}.jsonl").write_text("".join(encode_event(event) + "\n" for event in events))
    point = SimpleNamespace(effort=Effort(steps=1), settings=None)
    session = SimpleNamespace(attempts=[(point, 1)], is_last=lambda _place: True, log=tmp_path / "worker.log")
    worker = SimpleNamespace(wait=lambda _limit_s: 0, end=lambda: None)
    gpus = SimpleNamespace(note=lambda _rank, _event: None, samples_power=False)
    progress = Mock(spec=Progress)
    reader = EventReader(tmp_path, 2, 1)
    reader.begin(0, lambda *_any: None)
    failed = follow(cast("Any", session), 0, cast("Any", worker), reader, cast("Any", gpus), progress)
    assert failed is None
    progress.step.assert_called_once_with(1, 1, "measure", rate, "tok/s")
