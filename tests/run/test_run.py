"""The loop over attempts, with a worker that misbehaves on demand."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pybench.evidence.verify import verify_folder
from pybench.files.run.folder import RunFolder
from pybench.model.errors import RunFolderError
from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.report.formats import REPORT_FILES, render
from pybench.report.run import terminal
from pybench.report.run.view import RunView
from pybench.run import attempt, loop
from pybench.run.engines.base import Launch, LaunchRequirements
from pybench.run.engines.process import processes_marked
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run, resume_run
from tests.processes import wait_for
from tests.programs import fake_python
from tests.run.drill import suite_text, table_text
from tests.run.fake_launcher import FakeLauncher

HERE = Path(__file__).parent
LIMIT_S = 60
SUITE = suite_text(max_attempts=3, time_limit_s=LIMIT_S)
TABLE = table_text()


class ByRanks(FakeLauncher):
    """A behaviour for each number of ranks."""

    def behaviour(self, job: Launch) -> dict[str, str]:
        behaviour = os.environ[f"FAKE_BEHAVIOUR_{job.num_processes}"]
        return {"FAKE_BEHAVIOUR": behaviour, "FAKE_POINT": os.environ.get("FAKE_POINT", "")}


def fake(_needs: LaunchRequirements) -> ByRanks:
    return ByRanks()


@pytest.fixture(autouse=True)
def _cpu_only(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drills are the same on a machine that has GPUs."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_1", "ok")
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "ok")


def prepare(tmp_path: Path) -> Run:
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "drill.toml").write_text(TABLE)
    (tmp_path / "drill.toml").write_text(SUITE)
    return prepare_run(tmp_path / "drill.toml", tmp_path / "runs", fake)


def finish(run: Run) -> Results:
    return run.finish(Progress())


def pass_once_a_worker_hangs(run: Run, monkeypatch: pytest.MonkeyPatch, passed_s: float, *modules: ModuleType) -> None:
    """Let the clock of these modules stand still until then, and so much be over from then on."""
    clock = SimpleNamespace(
        monotonic=lambda: passed_s * any(run.folder.path.glob("attempts/*/exchange/hangs")),
        monotonic_ns=time.monotonic_ns,
        time_ns=time.time_ns,
    )
    for module in modules:
        monkeypatch.setattr(module, "time", clock)


def causes(run: Run) -> dict[tuple[str, int], str | None]:
    return {(r.point_id[-2], r.attempt): r.failure.cause if r.failure else None for r in run.folder.journal.records()}


def test_a_healthy_run_passes(tmp_path: Path) -> None:
    """Two points, two attempts each, speedup exactly 2, backwards in the second round."""
    run = prepare(tmp_path)
    results = finish(run)
    assert results.verdict == "pass"
    row = results.scaling[0]
    assert row.speedup == pytest.approx(2.0, rel=1e-6)
    assert row.efficiency == pytest.approx(1.0, rel=1e-6)
    assert [(r.point_id[-2], r.attempt) for r in run.folder.journal.records()] == [
        ("1", 1),
        ("2", 1),
        ("2", 2),
        ("1", 2),
    ]
    assert all(r.energy is None and r.energy_reason for r in run.folder.journal.records())


@pytest.mark.parametrize(
    ("behaviour", "cause", "message"),
    [
        ("crash", "exit_code", "exit code 9 without a result"),
        ("signal", "signal", "ended by signal 9"),
        ("oom", "out_of_memory", "CUDA out of memory"),
        ("silent", "protocol", "exit code 0, but no result from rank 0"),
        ("garbage", "protocol", "not an event of protocol"),
        ("short", "protocol", "measured 2 steps, 3 were ordered"),
        ("other-clock", "protocol", "runs on another clock"),
    ],
)
def test_a_broken_worker_is_a_record_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, cause: str, message: str
) -> None:
    """The cause is in the record, the healthy point is measured; the verdict is error unless memory ran out."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", behaviour)
    run = prepare(tmp_path)
    results = finish(run)
    failed = [r for r in run.folder.journal.records() if r.failure]
    assert failed
    assert {r.failure.cause for r in failed if r.failure} == {cause}
    assert message in (failed[0].failure.message if failed[0].failure else "")
    assert causes(run)["1", 2] is None
    unfit = behaviour == "oom"
    assert (results.verdict == "error") != unfit
    assert {p.id[-2]: p.status for p in results.points} == {"1": "ok", "2": "does_not_fit" if unfit else "failed"}


def test_a_worker_that_the_kernel_killed_for_memory_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cause is the host's memory where the kernel's count rose during the attempt, and the report has a remedy."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "signal")
    counts = count()
    monkeypatch.setattr(attempt, "num_oom_kills", lambda: next(counts))
    run = prepare(tmp_path)
    results = finish(run)
    [failed] = [record.failure for record in run.folder.journal.records() if record.failure]
    assert failed.cause == "host_memory"
    assert failed.message.startswith("the host's memory ran out, and the kernel ended 1 process: ended by signal 9")
    assert results.verdict == "error"
    text = " ".join(terminal.render(RunView.of_folder(run.folder), width=80).split())
    assert "next: free memory of the host, or take settings that need less of it" in text


def test_the_logs_tail_is_kept_with_the_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody should have to open the log to know."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "crash")
    run = prepare(tmp_path)
    finish(run)
    failure = next(r.failure for r in run.folder.journal.records() if r.failure)
    assert "Segmentation fault (imagined)" in failure.detail


def test_a_hang_is_ended_at_its_time_limit_and_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ignores SIGTERM, too; nothing is left behind. Its limit is over, by the runner's clock, once it hangs."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "hang")
    run = prepare(tmp_path)
    pass_once_a_worker_hangs(run, monkeypatch, 2.0 * LIMIT_S, attempt)
    finish(run)
    assert causes(run) == {("1", 1): None, ("2", 1): "time_limit", ("1", 2): None}
    assert not list(processes_marked(run.folder.mark))


def test_a_flaky_point_is_measured_by_its_good_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One crash of three is reported, and more attempts are run while the verdict is open."""
    monkeypatch.setenv("FAKE_BEHAVIOUR_2", "crash,ok")
    run = prepare(tmp_path)
    results = finish(run)
    assert causes(run)["2", 1] == "exit_code"
    point = next(p for p in results.points if p.id[-2] == "2")
    assert (point.status, point.failed_attempts) == ("ok", 1)


def test_more_attempts_are_announced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round of them would say the same."""
    notes: list[str] = []
    monkeypatch.setattr(Progress, "note", lambda _self, text: notes.append(text))
    rounds = iter([3, 4])
    monkeypatch.setattr(loop, "undecided", lambda points, _rows, _records: [(points[0], n) for n in islice(rounds, 1)])
    run = prepare(tmp_path)
    finish(run)
    assert causes(run)["1", 4] is None
    assert [note for note in notes if "inconclusive" in note] == [
        "inconclusive: undecided points get more attempts, up to their max_attempts"
    ]


def test_resume_repeats_nothing(tmp_path: Path) -> None:
    """A finished run resumed measures no more."""
    run = prepare(tmp_path)
    finish(run)
    before = run.folder.journal.records()
    again = resume_run(run.folder.path, fake)
    assert finish(again).verdict == "pass"
    assert run.folder.journal.records() == before


def test_resume_goes_on_where_the_journal_ends(tmp_path: Path) -> None:
    """Records that are there stay, those that are not are measured."""
    run = prepare(tmp_path)
    finish(run)
    journal = run.folder.path / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:2]) + lines[2][:40])
    assert finish(resume_run(run.folder.path, fake)).verdict == "pass"
    assert journal.read_text().splitlines(keepends=True)[:2] == lines[:2]
    assert len(run.folder.journal.records()) == 4


def test_resume_refuses_a_changed_worker(tmp_path: Path) -> None:
    """Half a run with one worker and half with another would be no run."""
    run = prepare(tmp_path)
    (run.folder.worker / "pybench" / "worker" / "extra.py").write_text("")
    with pytest.raises(RunFolderError, match="worker's source in it has changed"):
        resume_run(run.folder.path, fake)


def test_the_journal_refuses_another_points_settings(tmp_path: Path) -> None:
    """An id alone proves nothing."""
    run = prepare(tmp_path)
    finish(run)
    journal = run.folder.path / "journal.jsonl"
    first, *_ = run.folder.journal.records()
    journal.unlink()
    RunFolder(run.folder.path).journal.append(replace(first, point_digest="other"))
    for read in (lambda: finish(resume_run(run.folder.path, fake)), lambda: RunView.of_folder(run.folder)):
        with pytest.raises(RunFolderError, match="was measured with other settings"):
            read()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_killed_runner_loses_nothing_recorded(tmp_path: Path, warm_pybench: Path, number: signal.Signals) -> None:
    """Killed in its second attempt; what is left of the worker ends with --resume at the latest."""
    run = prepare(tmp_path)
    python = fake_python(tmp_path / "python", "hang", FAKE_POINT="tensor_parallel=2")
    command = (warm_pybench, "run", "--resume", run.folder.path, "--python", python)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        hung = run.folder.path / "attempts" / "decode_tensor_parallel=2.1" / "exchange" / "events.0.jsonl"
        wait_for(hung.exists)
        runner.send_signal(number)
        assert runner.wait(LIMIT_S) != 0
    assert causes(run) == {("1", 1): None}
    if number is not signal.SIGKILL:
        assert not list(processes_marked(run.folder.mark))
    assert finish(resume_run(run.folder.path, fake)).verdict == "pass"
    assert not list(processes_marked(run.folder.mark))


def test_a_resumed_run_that_is_killed_is_unfinished(tmp_path: Path) -> None:
    """The reports of its first part would contradict what the journal has by then."""
    run = prepare(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run.finish(StopsBefore(2))
    for name, file in REPORT_FILES.items():
        run.folder.write_report(file, render(RunView.of_folder(run.folder), name))
    assert states(run) == {"unfinished"}
    with pytest.raises(KeyboardInterrupt):
        resume_run(run.folder.path, fake).finish(StopsBefore(3))
    assert len(run.folder.journal.records()) == 2
    assert states(run) == {"unfinished"}


class StopsBefore(Progress):
    """An attempt by its place in the run."""

    def __init__(self, position: int) -> None:
        self._position = position

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:  # noqa: ARG002
        if position == self._position:
            raise KeyboardInterrupt


def states(run: Run) -> set[str]:
    """Discrepancies of a verification."""
    found = verify_folder(run.folder.path, run.folder.path.parents[1] / "drill.toml")
    return {one.state for one in found.discrepancies}
