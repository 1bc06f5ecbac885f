"""A run's time limit: attempts left out beforehand, and attempts that prove too long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pybench.core.schedule import pending
from pybench.evidence.verify import verify_folder
from pybench.model.errors import UsageError
from pybench.model.manifest import PlanOptions
from pybench.model.progress import Progress
from pybench.model.verdict import Counts
from pybench.report.run.more_attempts import decided_sentence
from pybench.report.run.terminal import render
from pybench.report.run.view import RunView
from pybench.run import attempt, loop, suite_plan
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run, resume_run
from pybench.run.suite_plan import plan_suite
from tests.golden_sentences import sentences_of
from tests.run.drill import suite_text, table_text
from tests.run.test_run import causes, fake, pass_once_a_worker_hangs

SENTENCES = sentences_of("run.time_limit")


class Notes(Progress):
    """Keeps what would be shown."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture(autouse=True)
def _cpu_only(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR_1", "ok")
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "ok")


def prepare(folder: Path, time_limit_s: float | None, time_limit_of_attempt_s: int = 60) -> Run:
    (folder / "expected").mkdir(exist_ok=True)
    (folder / "expected" / "drill.toml").write_text(table_text())
    (folder / "drill.toml").write_text(suite_text(max_attempts=3, time_limit_s=time_limit_of_attempt_s))
    return prepare_run(folder / "drill.toml", folder / "runs", fake, PlanOptions(time_limit_s=time_limit_s))


def test_a_generous_limit_changes_nothing(tmp_path: Path) -> None:
    """All attempts are made, and the limit is recorded."""
    run = prepare(tmp_path, 600.0)
    notes = Notes()
    results = run.finish(notes)
    assert (results.verdict, results.options) == ("pass", ("--time-limit 10m",))
    (note,) = notes.texts
    assert note == SENTENCES["a_generous_limit_changes_nothing"]
    assert run.folder.read_manifest().options == PlanOptions(time_limit_s=600.0)


def test_a_point_that_no_earlier_run_has_is_named(tmp_path: Path) -> None:
    """The other one was measured here."""
    prepare(tmp_path, None)
    one = PlanOptions(keep="tensor_parallel=1")
    prepare_run(tmp_path / "drill.toml", tmp_path / "runs", fake, one).finish(Progress())
    notes = Notes()
    prepare(tmp_path, 600.0).finish(notes)
    assert notes.texts[0] == SENTENCES["a_point_that_no_earlier_run_has_is"]


def test_an_attempt_that_runs_when_the_time_is_over_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves no record; unmeasured points are named and prevent a pass."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "hang")
    run = prepare(tmp_path, 4.0)
    notes = Notes()
    pass_once_a_worker_hangs(run, monkeypatch, 5.0, attempt, suite_plan)
    results = run.finish(notes)
    assert results.verdict == "missing"
    assert causes(run) == {("1", 1): None}
    assert "attempt 1: ended, --time-limit 4s is over" in notes.texts[1]
    assert notes.texts[2].startswith("--time-limit 4s: 3 attempts are not made: ")
    reasons = {point.id[-2]: (point.reason, point.flags) for point in results.points}
    assert reasons["2"] == (SENTENCES["an_attempt_that_runs_when_the_time"], ())
    assert "fewer_attempts" in reasons["1"][1]
    shown = render(RunView.of_folder(run.folder, results))
    assert "changed by --time-limit 4s" in shown
    assert "not measured: the run had --time-limit 4s" in shown
    found = verify_folder(run.folder.path, tmp_path / "drill.toml").discrepancies
    missing = [(each.kind, each.place, each.state) for each in found if "tensor_parallel=2" in each.place]
    point = "decode[tensor_parallel=2]"
    assert missing == [("owed", f"{point}, attempt {number}", "not checked") for number in (1, 2)]


def test_an_attempt_ends_with_the_last_step_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts, with a caution; far from the end it would fail."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "short")
    run = prepare(tmp_path, 600.0)
    monkeypatch.setattr(suite_plan.TimeBudget, "end_ns", 1)
    results = run.finish(Progress())
    records = run.folder.journal.records()
    assert all(record.ok for record in records)
    flags = {point.id[-2]: point.flags for point in results.points}
    assert ("fewer_steps" in flags["1"], "fewer_steps" in flags["2"]) == (False, True)


def test_a_worker_that_stops_far_from_the_end_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit is no licence for fewer steps."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "short")
    run = prepare(tmp_path, 600.0)
    run.finish(Progress())
    assert set(causes(run).values()) == {None, "protocol"}


def test_a_resumed_run_has_its_limit_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It measures what the first part had no time for."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "hang")
    run = prepare(tmp_path, 4.0)
    pass_once_a_worker_hangs(run, monkeypatch, 5.0, attempt, suite_plan)
    run.finish(Progress())
    assert causes(run) == {("1", 1): None}
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "ok")
    again = resume_run(run.folder.path, fake, PlanOptions(time_limit_s=4.0))
    again.finish(Progress())
    assert ("2", 1) in causes(again)


def test_an_earlier_run_shows_what_does_not_fit(tmp_path: Path) -> None:
    """It is left out before anything runs, in the plan of another run and in that of ``pybench plan``."""
    run = prepare(tmp_path, None)
    run.finish(Progress())
    second = prepare(tmp_path, 0.01)
    plan = second.manifest.plan
    assert plan.points == ()
    assert {skip.lacks for skip in plan.left_out} == {"points beyond --time-limit 0s"}
    results = second.finish(Progress())
    assert results.verdict == "no_expectation"
    assert results.left_out == ("points beyond --time-limit 0s",)
    planned = plan_suite(
        tmp_path / "drill.toml", run.manifest.machine, PlanOptions(time_limit_s=0.01), tmp_path / "runs"
    )[1]
    assert planned.left_out == plan.left_out


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (PlanOptions(time_limit_s=60.0), "--time-limit"),
        (PlanOptions(settings=("batch_size=2",)), "--set"),
        (PlanOptions(attempts=4, keep="decode"), "-k, --attempts"),
    ],
)
def test_resume_refuses_other_options(tmp_path: Path, given: PlanOptions, named: str) -> None:
    """It continues the plan that was made; the same options are accepted."""
    run = prepare(tmp_path, 600.0)
    with pytest.raises(UsageError, match=f"began with --time-limit 10m; leave the others out \\({named}\\)"):
        resume_run(run.folder.path, fake, given)
    assert resume_run(run.folder.path, fake, PlanOptions(time_limit_s=600.0)).manifest == run.manifest


def test_attempts_at_many_points_are_counted(tmp_path: Path) -> None:
    """The report names each; three points are named at once."""
    point = prepare(tmp_path, 60.0).manifest.plan.points[0]
    owed = [(replace(point, id=f"p{place}"), number) for place in range(4) for number in (2, 3)]
    budget = suite_plan.TimeBudget(60.0)
    assert budget.left_out_note(owed) == SENTENCES["attempts_at_many_points_are_counted"]
    assert budget.left_out_note(owed[4:]) == SENTENCES["attempts_at_many_points_are_counted_2"]


def test_an_attempt_without_time_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan owes it; that its verdict is inconclusive, too, is no second note."""
    run = prepare(tmp_path, 600.0)
    monkeypatch.setattr(loop, "in_time", lambda owed, *_: tuple(each for each in owed if each[1] == 1))
    notes = Notes()
    assert run.finish(notes).verdict == "inconclusive"
    assert [text for text in notes.texts if "not made" in text] == [SENTENCES["an_attempt_without_time_is_noted"]]


def test_the_report_begins_with_what_was_decided_and_the_time_of_the_rest(tmp_path: Path) -> None:
    """Three attempts of 100 s: the plan owes one more at the other point, of which nothing is known yet."""
    run = prepare(tmp_path, 600.0)
    run.finish(Progress())
    view = RunView.of_folder(run.folder)
    assert decided_sentence(view) is None
    records = tuple(replace(record, duration_s=100.0) for record in view.records[:-1])
    counts = Counts(passed=1, failed=2, inconclusive=3, missing=1)
    cut = replace(view, results=replace(view.results, counts=counts), records=records)
    took, owed = len(records) * 100, len(pending(run.manifest.plan.points, records)) * 100
    assert owed > 0
    sentence = decided_sentence(cut)
    assert sentence == f"decided 3 of 7 in {took / 60:.1f} min; the rest needs about {owed / 60:.1f} min"
    assert render(cut).splitlines()[1] == sentence
    no_limit = replace(run.manifest, options=PlanOptions())
    assert decided_sentence(replace(cut, manifest=no_limit)) is None
