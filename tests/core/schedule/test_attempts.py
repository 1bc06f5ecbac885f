"""Which attempt comes next."""

from __future__ import annotations

from dataclasses import replace

from pybench.core.schedule import by_decision, pending, undecided
from pybench.model.record import Record
from pybench.model.results import CheckResult, ScalingResult
from pybench.model.suite import Effort, Point
from pybench.model.verdict import Decision, Verdict
from pybench.model.wire import Failure, FailureCause
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Matmul
from tests.builders import CHECK, NODE_CHECK, RECORD, SCALING


def point(name: str, attempts: int = 2, max_attempts: int = 3) -> Point:
    return Point(
        id=name,
        benchmark="decode",
        axes={},
        settings=Generate(backend="torch", model="m", batch_size=1, prompt_tokens=1, output_tokens=2),
        effort=Effort(attempts=attempts, max_attempts=max_attempts),
        architecture={},
    )


def apart(name: str) -> Point:
    """A point that shares no process."""
    made = point(name, 3)
    settings = replace(made.settings, seed=ord(name))
    return replace(made, settings=settings, effort=replace(made.effort, share_process=False))


def record(name: str, attempt: int, cause: FailureCause | None = None) -> Record:
    failure = Failure(cause=cause, message="") if cause else None
    return replace(RECORD, point_id=name, attempt=attempt, failure=failure)


OPEN = Decision(num_attempts=2, p_pass=0.1, p_fail=0.9, pass_level=0.0125, fail_level=0.0125, attempts_to_decide=3)


def row(verdict: Verdict, decision: Decision | None = OPEN) -> ScalingResult:
    return replace(SCALING, point_id="b", baseline_id="a", verdict=verdict, decision=decision)


def check(verdict: Verdict) -> CheckResult:
    return replace(CHECK, point_id="b", verdict=verdict, decision=OPEN)


def names(attempts: tuple[tuple[Point, int], ...]) -> list[str]:
    return [f"{p.id}{number}" for p, number in attempts]


def test_rounds_alternate_their_direction() -> None:
    """A-B-B-A: a drift over the run cancels."""
    assert names(pending((point("a", 3), point("b", 3)), ())) == ["a1", "b1", "b2", "a2", "a3", "b3"]


def test_recorded_attempts_are_not_repeated() -> None:
    """Attempts that a resumed run still owes."""
    assert names(pending((point("a"), point("b")), (record("a", 1), record("b", 2)))) == ["b1", "a2"]


def test_attempts_come_in_the_order_in_which_they_decide() -> None:
    """One of each judged point, more where a row is undecided, then of decided rows, and what nothing judges."""
    points = tuple(apart(name) for name in ("c", "d", "e", "b", "a"))
    judged = replace(SCALING, point_id="d", baseline_id="e", verdict="missing")
    shown = replace(SCALING, point_id="c", baseline_id="c", verdict="no_expectation")
    rows = (row("missing"), judged, shown)
    first = ["d1", "e1", "e2", "d2"], ["b1", "a1", "a2", "b2"]
    last = ["d3", "e3", "b3", "a3", "c1", "c2", "c3"]
    owed = pending(points, ())
    assert names(by_decision(owed, rows, {})) == [*first[0], *first[1], *last]
    seconds = {p.digest: 1.0 for p in points if p.id in "ab"}
    assert names(by_decision(owed, rows, seconds)) == [*first[1], *first[0], *last]
    twice = (*rows, replace(row("missing"), metric="energy_j_per_output_token"))
    assert names(by_decision(owed, twice, {})) == [*first[1], *first[0], *last]
    decided = (row("missing"), replace(judged, verdict="pass"), shown)
    after = [*first[1], "d1", "e1", "b3", "a3", "e2", "d2", "d3", "e3", "c1", "c2", "c3"]
    assert names(by_decision(owed, decided, {})) == after


def test_rows_out_of_reach_wait() -> None:
    """No number of attempts, or more than a point may have, decides the row of `a` and `b`."""
    points = tuple(apart(name) for name in ("b", "a", "e"))
    other = replace(SCALING, point_id="e", baseline_id="e", verdict="missing")
    owed = tuple(attempt for attempt in pending(points, ()) if attempt[1] > 1 or attempt[0].id == "e")
    for needed in (None, 4, 3):
        rows = (row("inconclusive", replace(OPEN, attempts_to_decide=needed)), other)
        decided_by = ["e1", "e2", "a2", "b2"] if needed == 3 else ["e1", "e2", "e3", "a2"]
        assert names(by_decision(owed, rows, {}))[:4] == decided_by


def test_points_of_one_process_decide_together() -> None:
    """Their attempts stay neighbours, so that one process makes them."""
    points = (point("b"), point("a"), point("d"))
    alone = replace(SCALING, point_id="d", baseline_id="d", verdict="missing")
    assert names(by_decision(pending(points, ()), (row("missing"), alone), {})) == ["b1", "a1", "d1", "d2", "a2", "b2"]


def test_a_check_of_the_whole_run_changes_no_order() -> None:
    """It is made from no point."""
    of_run = replace(NODE_CHECK, point_id=None)
    owed = pending((point("a"), point("b")), ())
    assert names(by_decision(owed, (row("missing"), of_run), {})) == ["a1", "b1", "b2", "a2"]


def test_points_may_want_different_numbers_of_attempts() -> None:
    """Each point has its own effort."""
    assert names(pending((point("a", 1), point("b", 2)), ())) == ["a1", "b1", "b2"]


def test_nothing_is_owed_to_no_points() -> None:
    """The empty plan."""
    assert pending((), ()) == ()


def test_an_out_of_memory_point_is_given_up_and_a_crashed_one_is_not() -> None:
    """The first would end the same way again."""
    records = (record("a", 1, "out_of_memory"), record("b", 1, "signal"))
    assert names(pending((point("a"), point("b")), records)) == ["b2"]


def test_inconclusive_verdicts_get_one_more_attempt_for_both_sides() -> None:
    """The ratio's spread comes from both points."""
    records = (record("a", 1), record("a", 2), record("b", 1), record("b", 2))
    assert names(undecided((point("a"), point("b"), point("c")), (row("inconclusive"),), records)) == ["a3", "b3"]


def test_an_inconclusive_limit_gets_one_more_attempt_for_its_point() -> None:
    """No baseline is part of it."""
    records = (record("a", 1), record("b", 1))
    assert names(undecided((point("a"), point("b")), (check("inconclusive"),), records)) == ["b2"]


def test_the_budget_ends_it() -> None:
    """No point goes past its max_attempts."""
    records = (*(record("a", n) for n in (1, 2, 3)), record("b", 1), record("b", 2))
    assert names(undecided((point("a"), point("b")), (row("inconclusive"),), records)) == ["b3"]


def test_what_attempts_cannot_change_gets_none() -> None:
    """Decided rows, a held-back baseline, a loss curve, and an interval that sensors' gains alone keep open."""
    final = replace(OPEN, is_final=True)
    rows = (row("pass"), row("fail"), row("inconclusive", None), row("inconclusive", final))
    assert undecided((point("a"), point("b")), (*rows, check("pass"), check("missing")), ()) == ()


def test_a_fail_is_confirmed_by_attempts_beyond_the_budget() -> None:
    """Up to ten, unless the number of attempts is fixed."""
    unconfirmed = row("inconclusive", replace(OPEN, is_unconfirmed=True))
    for num, max_attempts, owed in ((3, 3, ["b4", "a4"]), (9, 3, ["b10", "a10"]), (10, 3, []), (2, 2, [])):
        points = (point("a", 2, max_attempts), point("b", 2, max_attempts))
        done = [record(name, number) for name in "ab" for number in range(1, num + 1)]
        assert names(undecided(points, (unconfirmed,), done)) == owed


def test_extra_attempts_alternate_their_direction() -> None:
    """A-B-B-A goes on: the third round runs forwards, the fourth backwards, so drift biases neither."""
    points = (point("a", 2, 6), point("b", 2, 6))
    done = [record(name, number) for name in "ab" for number in (1, 2)]
    assert names(undecided(points, (row("inconclusive"),), done)) == ["a3", "b3"]
    done += [record("a", 3), record("b", 3)]
    assert names(undecided(points, (row("inconclusive"),), done)) == ["b4", "a4"]


def test_a_point_that_was_given_up_gets_no_extra_attempt() -> None:
    """Its baseline may still be measured again."""
    records = (record("a", 1), record("b", 1, "out_of_memory"))
    assert names(undecided((point("a"), point("b")), (row("inconclusive"),), records)) == ["a2"]


def failed_behind_another(name: str, attempt: int, cause: FailureCause) -> Record:
    return replace(record(name, attempt, cause), warm_after=("z",))


def test_a_failure_in_a_warm_process_is_owed_again() -> None:
    """Even of a cause that is final for a fresh one; a second failure, fresh, ends it."""
    failed = failed_behind_another("a", 1, "out_of_memory")
    assert names(pending((point("a", 1),), (failed,))) == ["a2"]
    assert names(pending((point("a"), point("b")), (failed,))) == ["b1", "b2", "a2", "a3"]
    assert pending((point("a", 2),), (failed, record("a", 2, "out_of_memory"))) == ()


def test_a_failure_in_a_warm_process_costs_no_budget() -> None:
    """Of the attempts that an open verdict may have."""
    records = (failed_behind_another("b", 1, "signal"), *(record("b", n) for n in (2, 3)))
    assert names(undecided((point("a"), point("b")), (check("inconclusive"),), records)) == ["b4"]


def test_rates_come_before_the_speedups_that_they_predict() -> None:
    """Points with a row of a table come first, also their third attempts, then rates, then each predicted point."""
    rates = replace(point("r"), settings=Matmul(backend="torch", gpus=2, precision="bfloat16"))
    by_table = replace(SCALING, point_id="t", baseline_id="t", verdict="missing")
    predicted = replace(row("no_expectation"), expected=None)
    owed = pending((point("a"), point("b"), rates, point("t", 3), point("x")), ())
    assert names(by_decision(owed, (by_table, predicted), {}, has_rates=True)) == [
        "t1",
        "t2",
        "t3",
        "r1",
        "r2",
        "a1",
        "b1",
        "x1",
        "x2",
        "b2",
        "a2",
    ]
