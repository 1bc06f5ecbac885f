"""Progress of a worker."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pybench.model.progress import Progress
from pybench.model.suite import Effort
from pybench.model.wire import Event, Failure, Phase, Result, Step, Work, encode_event
from pybench.run.attempt import follow
from pybench.run.engines.process import Worker
from pybench.run.events.reader import EventReader
from pybench.run.suite_plan import OutOfTimeError
from tests.builders import HEADER

RESULT = Result(warmup_steps=0, steady=True)


def step(output_tokens: int) -> Step:
    return Step(index=0, phase="measure", start_ns=0, end_ns=10**9, work=Work(output_tokens=output_tokens))


def followed(
    folder: Path,
    events: Sequence[Sequence[Event]],
    code: int | None,
    progress: Progress,
    *,
    end_s: float = 0.0,
    time_limit_s: float = 900.0,
    later: Sequence[Event] = (),
) -> Failure | None:
    """Of a worker whose ranks have reported ``events``, with its exit code; ``None``: it runs when the time is over.

    Each rank reports ``later`` once it was waited for.
    """
    for rank, own in enumerate(events):
        (folder / f"events.{rank}.jsonl").write_text("".join(encode_event(event) + "\n" for event in own))

    def wait(_timeout_s: float) -> int | None:
        if waited:
            for rank, _ in enumerate(events):
                with (folder / f"events.{rank}.jsonl").open("a") as file:
                    file.write("".join(encode_event(event) + "\n" for event in later))
        waited.append(code)
        return code

    waited: list[int | None] = []
    point = SimpleNamespace(effort=Effort(steps=1, time_limit_s=time_limit_s), settings=None)
    session: Any = SimpleNamespace(
        attempts=[(point, 1)], is_last=lambda _place: True, log=folder / "worker.log", end_s=end_s
    )
    worker = Mock(spec=Worker)
    worker.wait.side_effect = wait
    gpus: Any = SimpleNamespace(note=lambda _rank, _event: None, samples_power=False)
    reader = EventReader(folder, len(events), 1)
    reader.begin(0, lambda *_any: None)
    try:
        return follow(session, 0, worker, reader, gpus, progress)
    finally:
        worker.end.assert_called_with()


@pytest.mark.parametrize(("replicas", "rate"), [((0, 0), 100.0), ((0, 1), 200.0)])
def test_copies_rates_add_up(tmp_path: Path, replicas: tuple[int, int], rate: float) -> None:
    """Two ranks of one model report the same tokens, two copies different ones."""
    headers = [replace(HEADER, rank=rank, world_size=2, replica=own) for rank, own in enumerate(replicas)]
    events = [(header, Phase(name="measure", start_ns=0), step(100), RESULT) for header in headers]
    progress = Mock(spec=Progress)
    assert followed(tmp_path, events, 0, progress) is None
    progress.step.assert_called_once_with(1, 1, "measure", rate, "tok/s")


def test_a_worker_that_only_has_to_end_is_measured_when_the_time_is_over(tmp_path: Path) -> None:
    """An engine takes seconds to end, and what it reported counts."""
    assert followed(tmp_path, [(HEADER, step(100), RESULT)], None, Progress()) is None


def test_a_worker_without_its_result_is_not(tmp_path: Path) -> None:
    """Also with all of its steps: what comes behind them can fail."""
    with pytest.raises(OutOfTimeError):
        followed(tmp_path, [(HEADER, step(100))], None, Progress())


def test_a_worker_with_all_its_steps_has_half_a_minute_to_end(tmp_path: Path) -> None:
    """Its engine ends before the result comes. Minutes of work would be lost for seconds."""
    finishing = (HEADER, step(100), Phase(name="finish", start_ns=0))
    over = time.monotonic() - 1.0
    assert followed(tmp_path, [finishing, finishing], None, Progress(), end_s=over, later=(RESULT,)) is None
    with pytest.raises(OutOfTimeError):
        followed(tmp_path, [finishing, (HEADER, step(100))], None, Progress(), end_s=over)
    with pytest.raises(OutOfTimeError):
        followed(tmp_path, [finishing], None, Progress(), end_s=over - 30.0)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((HEADER, Phase(name="measure", start_ns=0), step(100)), "no result within 0 s, last seen in phase measure"),
        ((HEADER, Phase(name="finish", start_ns=0), step(100), RESULT), "did not end within 0 s, last seen in phase"),
    ],
)
def test_the_limit_of_an_attempt_names_what_it_waited_for(
    events: Sequence[Event], message: str, tmp_path: Path
) -> None:
    """Of a worker that hangs at its end the result is there."""
    failed = followed(tmp_path, [events], None, Progress(), end_s=math.inf, time_limit_s=0.0)
    assert failed is not None
    assert (failed.cause, failed.message.startswith(message)) == ("time_limit", True), failed.message
