"""Records of attempts that shared a worker process, held against its events behind a failed one, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pybench.evidence.events import check_events
from pybench.model.record import Record
from pybench.model.wire import Failure
from pybench.run.prepare import prepare_run
from tests.evidence.forgery import Forgery, faster
from tests.progress import NoProgress
from tests.run.drill import suite_text
from tests.run.test_run import fake, finish
from tests.run.test_sessions import prepare


@pytest.fixture
def shared(tmp_path: Path, no_driver: None, monkeypatch: pytest.MonkeyPatch) -> Forgery:
    """A run of two processes, each of which measured three points."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_1", "ok")
    monkeypatch.setenv("FAKE_POINT", "m=2")
    run = prepare(tmp_path)
    finish(run)
    return Forgery(run.folder.path)


def killed(record: Record) -> Record:
    """As somebody counts a good attempt who has no use for it: a worker may be killed behind its last event."""
    failure = Failure(cause="signal", message="killed")
    return replace(record, failure=failure, energy_reason="the attempt failed")


def quick(record: Record) -> Record:
    """Every step takes a quarter of its time."""
    (rank,) = record.ranks
    steps = tuple(replace(s, end_ns=s.start_ns + (s.end_ns - s.start_ns) // 4) for s in rank.steps)
    return replace(record, ranks=(replace(rank, steps=steps),))


def found(forgery: Forgery, records: list[Record]) -> list[tuple[str, str]]:
    discrepancies = check_events(forgery.path, forgery.folder.read_manifest(), records)
    return [(one.place, one.text) for one in discrepancies]


def test_nothing_is_recorded_behind_a_failed_attempt(shared: Forgery) -> None:
    """Its process ended with it; each record behind it is named, and compared all the same."""
    first, *rest = shared.records
    assert found(shared, [first, *rest]) == []
    ended = "measured by the process of matmul[m=1], attempt 1, which failed: a process ends with that"
    places = ["matmul[m=2], attempt 1", "matmul[m=3], attempt 1"]
    assert found(shared, [killed(first), *rest]) == [(place, ended) for place in places]
    differ = "rank 0: steps differ at 0, 1, 2 from its worker's events"
    edited = [killed(first), quick(rest[0]), *rest[1:]]
    assert found(shared, edited) == [(places[0], ended), (places[0], differ), (places[1], ended)]


def test_a_failed_attempt_is_the_last_of_its_process(shared: Forgery) -> None:
    """Of a process that ended there, and of the next one, all holds."""
    records = shared.records
    last = next(place for place, record in enumerate(records) if record.log != records[0].log) - 1
    assert (last, found(shared, [*records[:last], killed(records[last]), *records[last + 1 :]])) == (2, [])


class Interrupting(NoProgress):
    """In the warm-up of the second point."""

    def __init__(self) -> None:
        self._phases: list[str] = []

    def phase(self, name: str) -> None:
        self._phases.append(name)
        if self._phases.count("warmup") == 2:
            raise KeyboardInterrupt


def test_what_was_begun_as_a_run_was_interrupted_is_held_against_nothing(
    tmp_path: Path, no_driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of an attempt without a record follow those of one that both ranks measured to its end."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "ok")
    points = "tensor_parallel = [2]\nbatch_size = [1, 2]"
    suite = suite_text(max_attempts=2, time_limit_s=60).replace("batch_size = 1\n", "")
    (tmp_path / "drill.toml").write_text(
        suite.partition("[[benchmark.expect]]")[0].replace("tensor_parallel = [1, 2]", points)
    )
    run = prepare_run(tmp_path / "drill.toml", tmp_path / "runs", fake)
    with pytest.raises(KeyboardInterrupt):
        run.finish(Interrupting())
    forgery = Forgery(run.folder.path)
    (record,) = forgery.records
    assert found(forgery, [record]) == []
    differ = "rank 0: steps differ at 0, 1, 2 from its worker's events"
    assert (f"{record.point_id}, attempt 1", differ) in found(forgery, [faster(record)])
