"""Following event files while they grow."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from pybench.model.wire import Event, Failure, Metric, Phase, Result, Step, Work, encode_event
from pybench.run.events.reader import MAX_LINE_BYTES, EventReader


def reader_of(exchange: Path, num_ranks: int, num_points: int) -> EventReader:
    """One that takes every event."""
    reader = EventReader(exchange, num_ranks, num_points)
    for place in range(num_points):
        reader.begin(place, lambda *_any: None)
    return reader


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    """A poll between two writes must lose nothing."""
    reader = reader_of(tmp_path, 1, 1)
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
    reader = reader_of(tmp_path, 2, 1)
    assert [rank for rank, _ in reader.poll()] == [1, 1, 1, 1]
    log = reader.points[0][1]
    assert log.steps == steps[1:]
    assert log.result == Result(warmup_steps=1, steady=True)
    assert log.report() is None  # no header yet


def test_a_line_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    """Something else wrote into the exchange folder."""
    (tmp_path / "events.0.jsonl").write_text('{"surprise": {}}\n')
    with pytest.raises(ValueError, match="not an event of protocol 2"):
        reader_of(tmp_path, 1, 1).poll()


def test_a_result_ends_a_points_part_of_the_stream(tmp_path: Path) -> None:
    """What comes behind it belongs to the next point, also a failure on the way there."""
    reader = reader_of(tmp_path, 1, 2)
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
    reader = reader_of(tmp_path, 1, 1)
    events: list[Event] = [Result(warmup_steps=1, steady=True), Failure(cause="exception", message="late")]
    (tmp_path / "events.0.jsonl").write_text("".join(encode_event(e) + "\n" for e in events))
    reader.poll()
    assert reader.points[0][0].failure == events[1]


def test_a_rank_that_runs_ahead_is_refused(tmp_path: Path) -> None:
    """Before the host lets a rank go on, the rank may fail and nothing else."""
    reader = EventReader(tmp_path, 1, 2)
    reader.begin(0, lambda *_any: None)
    path = tmp_path / "events.0.jsonl"
    path.write_text(encode_event(Result(warmup_steps=1, steady=True)) + "\n")
    reader.poll()
    with path.open("a") as stream:
        stream.write(encode_event(Failure(cause="exception", message="late")) + "\n")
    reader.poll()
    assert reader.points[1][0].failure is not None
    with path.open("a") as stream:
        stream.write(encode_event(Phase(name="prepare", start_ns=1)) + "\n")
    with pytest.raises(ValueError, match="rank 0: phase: comes before the host let the rank go on"):
        reader.poll()


def test_a_sparse_file_costs_no_memory(tmp_path: Path) -> None:
    """64 GiB of nothing: the first line that is too long ends it."""
    path = tmp_path / "events.0.jsonl"
    with path.open("wb") as stream:
        stream.truncate(64 * 2**30)
    tracemalloc.start()
    with pytest.raises(ValueError, match="has a line of more than 33554432 bytes"):
        reader_of(tmp_path, 1, 1).poll()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * MAX_LINE_BYTES


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    """A worker can put anything in its place; nothing is followed, and nothing waited for."""
    path = tmp_path / "events.0.jsonl"
    match kind:
        case "link":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(ValueError, match=r"events\.0\.jsonl"):
        reader_of(tmp_path, 1, 1).poll()
