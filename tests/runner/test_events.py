"""Following event files while they grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.model.wire import Event, Failure, Metric, Phase, Result, Step, Work, encode_event
from pybench.runner.events import EventReader


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    """A poll between two writes must lose nothing."""
    reader = EventReader(tmp_path, 1, 1)
    assert reader.poll() == []
    line = encode_event(Phase(name="warmup", start_ns=5)) + "\n"
    path = tmp_path / "events.0.jsonl"
    path.write_text(line[:10])
    assert reader.poll() == []
    with path.open("a") as stream:
        stream.write(line[10:])
    assert reader.poll() == [(0, Phase(name="warmup", start_ns=5))]
    assert reader.points[0][0].first_warmup_ns == 5
    assert reader.poll() == []


def test_only_measured_steps_are_kept(tmp_path: Path) -> None:
    """Warm-up steps are shown and then forgotten."""
    steps = [
        Step(index=0, phase="warmup", start_ns=0, end_ns=1, work=Work()),
        Step(index=0, phase="measure", start_ns=1, end_ns=3, work=Work(output_tokens=4), token_end_ns=(2, 3)),
    ]
    events: list[Event] = [*steps, Metric(name="m", value=1.0, unit="B"), Result(warmup_steps=1, steady=True)]
    (tmp_path / "events.1.jsonl").write_text("".join(encode_event(e) + "\n" for e in events))
    reader = EventReader(tmp_path, 2, 1)
    assert [rank for rank, _ in reader.poll()] == [1, 1, 1, 1]
    log = reader.points[0][1]
    assert log.steps == steps[1:]
    assert log.result == Result(warmup_steps=1, steady=True)
    assert log.report() is None  # no header yet


def test_a_line_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    """Something else wrote into the exchange folder."""
    (tmp_path / "events.0.jsonl").write_text('{"event": "surprise"}\n')
    with pytest.raises(ValueError, match="not an event of protocol 1"):
        EventReader(tmp_path, 1, 1).poll()


def test_a_result_ends_a_points_part_of_the_stream(tmp_path: Path) -> None:
    """What comes behind it belongs to the next point, also a failure on the way there."""
    reader = EventReader(tmp_path, 1, 2)
    result = Result(warmup_steps=1, steady=True)
    failure = Failure(cause="exception", message="gone")
    events: list[Event] = [Metric(name="m", value=1.0, unit="B"), result, failure]
    (tmp_path / "events.0.jsonl").write_text("".join(encode_event(e) + "\n" for e in events))
    reader.poll()
    first, second = (point[0] for point in reader.points)
    assert (len(first.metrics), first.result, first.failure) == (1, result, None)
    assert (len(second.metrics), second.result, second.failure) == (0, None, failure)


def test_a_failure_behind_the_last_result_is_that_points_own(tmp_path: Path) -> None:
    """No other one follows."""
    reader = EventReader(tmp_path, 1, 1)
    events: list[Event] = [Result(warmup_steps=1, steady=True), Failure(cause="exception", message="late")]
    (tmp_path / "events.0.jsonl").write_text("".join(encode_event(e) + "\n" for e in events))
    reader.poll()
    assert reader.points[0][0].failure == events[1]
