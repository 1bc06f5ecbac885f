"""Points that share a worker process: selection, records, and a failure in the middle."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from pybench.model.progress import Progress
from pybench.model.record import Record
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run, resume_run
from tests.run.test_run import causes, fake, finish

SUITE = """
schema = 1
name = "sessions"
description = "three points that need nothing but a rank"

[[benchmark]]
name = "matmul"
workload = "matmul"
backend = "torch"
gpus = 1
attempts = {attempts}
max_attempts = {attempts}
steps = 3
time_limit_s = 60
{more}

[benchmark.axes]
m = [1, 2, 3]
"""

Made = list[tuple[str, int, tuple[str, ...], str | None]]


@pytest.fixture(autouse=True)
def _cpu_only(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR_1", "ok")
    monkeypatch.setenv("FAKE_POINT", "m=2")


def prepare(tmp_path: Path, attempts: int = 2, more: str = "") -> Run:
    (tmp_path / "sessions.toml").write_text(SUITE.format(attempts=attempts, more=more))
    return prepare_run(tmp_path / "sessions.toml", tmp_path / "runs", fake)


def short(point_id: str) -> str:
    return point_id[-2]


def made(run: Run) -> Made:
    """Point, attempt, points before it in its process, cause of its failure."""
    return [
        (short(r.point_id), r.attempt, tuple(map(short, r.warm_after)), r.failure.cause if r.failure else None)
        for r in run.folder.journal.records()
    ]


def test_a_round_is_one_process(tmp_path: Path) -> None:
    """Two attempts at each point, in two processes, the second of which goes backwards."""
    run = prepare(tmp_path)
    results = finish(run)
    assert made(run) == [
        ("1", 1, (), None),
        ("2", 1, ("1",), None),
        ("3", 1, ("1", "2"), None),
        ("3", 2, (), None),
        ("2", 2, ("3",), None),
        ("1", 2, ("3", "2"), None),
    ]
    assert {p.id[-2]: [short(other) for other in p.shared_with] for p in results.points} == {
        "1": ["2", "3"],
        "2": ["1", "3"],
        "3": ["1", "2"],
    }
    assert [p.status for p in results.points] == ["ok"] * 3


def test_what_a_record_of_a_warm_process_says(tmp_path: Path) -> None:
    """Steps, pid and log are there for each; the process's start is the first one's only."""
    run = prepare(tmp_path, attempts=1)
    finish(run)
    records = run.folder.journal.records()
    assert len({record.ranks[0].header.pid for record in records}) == 1
    assert len({record.log for record in records}) == 1
    assert (run.folder.path / records[-1].log).read_text().splitlines() == ["fake worker: ok"] * 3
    assert [record.startup_s is None for record in records] == [False, True, True]
    for earlier, later in pairwise(records):
        assert earlier.ranks[0].steps[0].start_ns < later.ranks[0].steps[0].start_ns
        assert len(later.ranks[0].steps) == 3
        assert len(later.ranks[0].metrics) == 1


def test_a_suite_may_forbid_it(tmp_path: Path) -> None:
    """Every attempt has its own process then."""
    run = prepare(tmp_path, attempts=1, more="share_process = false")
    results = finish(run)
    assert made(run) == [(point, 1, (), None) for point in "123"]
    assert [p.shared_with for p in results.points] == [()] * 3


@pytest.mark.parametrize(("behaviour", "cause"), [("oom-warm", "out_of_memory"), ("crash-warm", "exit_code")])
def test_a_failure_in_a_warm_process_condemns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, cause: str
) -> None:
    """The point is measured again, alone, as often as it was to be; the one behind it in a process without it."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_1", behaviour)
    run = prepare(tmp_path)
    results = finish(run)
    assert made(run) == [
        ("1", 1, (), None),
        ("2", 1, ("1",), cause),
        ("3", 1, (), None),
        ("3", 2, (), None),
        ("2", 2, (), None),
        ("1", 2, (), None),
        ("2", 3, (), None),
    ]
    two = results.points[1]
    assert (two.status, two.attempts, two.failed_attempts) == ("ok", 3, 1)
    assert results.verdict == "no_expectation"


def test_a_failure_in_its_own_process_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran out of memory behind another point, and it does so alone: that is enough."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_1", "oom")
    run = prepare(tmp_path)
    results = finish(run)
    assert [one for one in made(run) if one[0] == "2"] == [
        ("2", 1, ("1",), "out_of_memory"),
        ("2", 2, (), "out_of_memory"),
    ]
    assert [p.status for p in results.points] == ["ok", "ok", "does_not_fit"]


def test_a_process_that_ends_between_two_points_fails_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's record is whole and stays; the second is measured again."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_1", "leave")
    run = prepare(tmp_path, attempts=1)
    finish(run)
    assert made(run) == [
        ("1", 1, (), None),
        ("2", 1, ("1",), None),
        ("3", 1, ("1", "2"), "exit_code"),
        ("3", 2, (), None),
    ]


def test_resume_goes_on_behind_what_is_recorded(tmp_path: Path) -> None:
    """Killed in the middle of a session: the rest of the round shares a new process."""
    run = prepare(tmp_path, attempts=1)
    finish(run)
    journal = run.folder.path / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0])
    finish(resume_run(run.folder.path, fake))
    assert journal.read_text().splitlines(keepends=True)[0] == lines[0]
    assert made(run) == [("1", 1, (), None), ("2", 1, (), None), ("3", 1, ("2",), None)]


def test_an_interrupt_keeps_what_was_told(tmp_path: Path) -> None:
    """Between two points of one process; the worker is gone then."""
    run = prepare(tmp_path, attempts=1)

    class Interrupting(Progress):
        def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:  # noqa: ARG002
            if short(point_id) == "3":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.finish(Interrupting())
    records: tuple[Record, ...] = run.folder.journal.records()
    assert causes(run) == {("1", 1): None, ("2", 1): None}
    assert not Path(f"/proc/{records[0].ranks[0].header.pid}").exists()


def test_every_order_is_handed_over_at_once(tmp_path: Path) -> None:
    """In the order of the points; the host's word to go on is a file for each but the first."""
    run = prepare(tmp_path, attempts=1)
    finish(run)
    exchange = (run.folder.path / run.folder.journal.records()[0].log).parent / "exchange"
    orders = [json.loads(line)["point_id"] for line in (exchange / "orders.jsonl").read_text().splitlines()]
    assert orders == [record.point_id for record in run.folder.journal.records()]
    assert sorted(path.name for path in exchange.glob("go.*")) == ["go.1", "go.2"]
