"""A run's folder survives what can happen to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pybench.model.errors import RunFolderError
from pybench.model.record import Energy, GpuEnergy, RankReport, Record
from pybench.model.wire import Failure, Header, Metric, Step, Work
from pybench.store.journal import RunFolder

NOW = datetime(2026, 11, 21, 8, 15, tzinfo=UTC)


def record(attempt: int = 1) -> Record:
    header = Header(
        rank=0,
        world_size=1,
        pid=1,
        boot_id="b",
        time_offset_ns=0,
        python="3.12.1",
        packages={"torch": "2.13.0"},
        device="cpu",
        device_name="cpu",
    )
    step = Step(index=0, phase="measure", start_ns=2**62, end_ns=2**62 + 1, work=Work(output_tokens=3), loss=0.1)
    gpu = GpuEnergy(
        uuid="GPU-a",
        index=0,
        energy_j=1.5,
        energy_low_j=1.0,
        energy_high_j=2.0,
        mean_power_w=None,
        max_power_w=None,
        method="counter",
        flags=("gap",),
    )
    return Record(
        point_id="decode[tensor_parallel=1]",
        point_digest="d",
        attempt=attempt,
        started_utc="2026-11-21T08:15:00+00:00",
        duration_s=1.25,
        startup_s=None,
        ranks=(RankReport(header=header, steps=(step,), metrics=(Metric(name="m", value=1.0, unit="B"),)),),
        failure=Failure(cause="signal", message="ended by signal 9", detail="tail\nümlaut"),
        energy=Energy(start_ns=1, end_ns=2, gpus=(gpu,)),
        energy_reason=None,
        log="attempts/x/worker.log",
        trace=None,
        argv=("python3", "-I"),
    )


def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "tp_scaling", NOW)


def test_runs_of_one_second_differ_in_their_mark(tmp_path: Path) -> None:
    """Else resuming one would end the other's workers."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    one, other = (RunFolder.create(tmp_path / name, "suite", now) for name in ("a", "b"))
    assert one.run_id == other.run_id
    assert one.mark != other.mark
    assert RunFolder(one.path).mark == one.mark


def test_folder_is_named_for_time_and_suite_and_never_shared(tmp_path: Path) -> None:
    """Two runs in one second get two folders."""
    assert run_folder(tmp_path).run_id == "20261121T081500Z-tp_scaling"
    assert run_folder(tmp_path).run_id == "20261121T081500Z-tp_scaling-2"


def test_records_come_back_as_they_went(tmp_path: Path) -> None:
    """Nanoseconds stay exact integers, tuples stay tuples, None stays None."""
    folder = run_folder(tmp_path)
    assert folder.records() == ()
    folder.append(record(1))
    folder.append(record(2))
    assert folder.records() == (record(1), record(2))


def test_a_torn_last_line_is_left_out_and_overwritten(tmp_path: Path) -> None:
    """What a SIGKILL or a power cut in mid-write leaves."""
    folder = run_folder(tmp_path)
    folder.append(record(1))
    with (folder.path / "journal.jsonl").open("ab") as stream:
        stream.write(b'{"point_id": "decode')
    assert folder.records() == (record(1),)
    folder.append(record(2))
    assert folder.records() == (record(1), record(2))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("garbage", "journal.jsonl:1: not JSON"),
        ("[]", "journal.jsonl:1: no version; not written by pybench"),
        ('{"version": 99}', r"journal.jsonl:1: from a newer pybench \(version 99, this one reads 1\); update"),
        ('{"version": 0}', r"journal.jsonl:1: version 0 is too old for this pybench \(reads 1\); run it again"),
        ('{"version": 1}', "journal.jsonl:1: point_id: Field required; the file was edited or damaged"),
    ],
)
def test_damage_before_the_last_line_is_an_error(tmp_path: Path, line: str, message: str) -> None:
    """A whole line that is no record is no accident of a crash."""
    folder = run_folder(tmp_path)
    (folder.path / "journal.jsonl").write_text(line + "\n")
    with pytest.raises(RunFolderError, match=message):
        folder.records()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    """The message says what a run is known by."""
    with pytest.raises(RunFolderError, match=r"no run here \(no manifest.json\); give a folder below runs/"):
        RunFolder.open(tmp_path)


def test_a_manifest_of_another_kind_is_refused(tmp_path: Path) -> None:
    """JSON is not enough."""
    folder = run_folder(tmp_path)
    manifest = folder.path / "manifest.json"
    manifest.write_text("{")
    with pytest.raises(RunFolderError, match="not readable as JSON"):
        folder.read_manifest()
    manifest.write_text(json.dumps({"version": 1}))
    with pytest.raises(RunFolderError, match=r"manifest.json: run_id: Field required"):
        folder.read_manifest()


def test_two_writers_exclude_each_other(tmp_path: Path) -> None:
    """The second one is told so at once."""
    folder = run_folder(tmp_path)
    with (
        folder.lock(),
        pytest.raises(RunFolderError, match="another pybench is writing this run"),
        RunFolder(folder.path).lock(),
    ):
        pytest.fail("entered twice")


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """Where, and what the system said."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match="cannot create the run's folder"):
        run_folder(tmp_path)


def test_attempt_folders_are_safe_names(tmp_path: Path) -> None:
    """No bracket reaches the shell."""
    folder = run_folder(tmp_path)
    path = folder.attempt("decode[backend=torch,tensor_parallel=2]", 3)
    assert path.name == "decode_backend=torch,tensor_parallel=2.3"
