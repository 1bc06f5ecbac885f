"""A folder of runs, whatever else is in it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pybench.model.errors import RunFolderError
from pybench.model.results import Estimate, Results
from pybench.nightly.history import History, read_history
from tests.builders import POINT_RESULT, PROVENANCE, RESULTS
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("nightly.history.folder")


def results(run_id: str, day: int) -> Results:
    """A run of one point."""
    figure = Estimate(value=100.0, low=None, high=None, unit="tokens/s", medians=(100.0, 100.0))
    point = replace(POINT_RESULT, status="ok", reason=None, metrics={"output_tokens_per_s": figure}, digest="d")
    when = replace(PROVENANCE, created_utc=f"2026-11-{day:02}T03:00:00+00:00")
    return replace(RESULTS, run_id=run_id, points=(point,), provenance=when, verdict="no_expectation")


def keep(folder: Path, name: str, day: int, **changed: object) -> Path:
    """A run as CI keeps it: a file."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**asdict(results(name, day)), **changed}))
    return path


def ids(found: History) -> list[str]:
    return [run.run_id for run in found.runs]


def test_runs_are_read_by_time_from_files_and_folders(tmp_path: Path) -> None:
    """Not by name. A folder may hold a results.json alone."""
    keep(tmp_path, "b", 1)
    keep(tmp_path, "a", 3)
    (tmp_path / "c").mkdir()
    keep(tmp_path / "c", "results", 2, run_id="c")
    (tmp_path / "notes.txt").write_text("no run")
    found = read_history(tmp_path)
    assert ids(found) == ["b", "c", "a"]
    assert found.skipped == ()
    assert found.runs[0].points[0].medians == {"output_tokens_per_s": (100.0, 100.0)}


def test_every_reading_shows_what_the_files_hold(tmp_path: Path) -> None:
    """Also where a file keeps its size and time, and whatever an index of an earlier build states."""
    file = keep(tmp_path, "a", 1)
    first = read_history(tmp_path)
    before = file.stat()
    file.write_text(file.read_text().replace("100.0", "200.0"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "index.jsonl").write_text("garbage")
    (run,) = read_history(tmp_path).runs
    assert run.points[0].medians == {"output_tokens_per_s": (200.0, 200.0)}
    file.unlink()
    assert (first.runs != (), read_history(tmp_path).runs) == (True, ())


def test_two_machines_may_give_their_runs_one_id(tmp_path: Path) -> None:
    """Jobs that begin in the same second. A copy of a run is the same run, of another machine it is none."""
    fields = {"machine_fields": {"gpus": '["GPU-1"]'}}
    keep(tmp_path, "a", 1, **fields)
    keep(tmp_path, "copy", 1, **fields, run_id="a")
    other = keep(tmp_path, "other", 1, machine_fields={"gpus": '["GPU-2"]'}, run_id="a")
    found = read_history(tmp_path)
    assert ids(found) == ["a", "a"]
    assert found.skipped == (("copy.json", SENTENCES["two_machines_may_give_their_runs_one"]),)
    assert {found.path(run).name for run in found.runs} == {"a.json", other.name}


def test_what_is_no_run_is_named_and_skipped(tmp_path: Path) -> None:
    """Half-written, of other versions, hostile, unreadable: each with a reason, and the good run is there."""
    keep(tmp_path, "good", 1)
    keep(tmp_path, "newer", 2, schema_version=99)
    keep(tmp_path, "timeless", 2, provenance={**asdict(results("x", 1))["provenance"], "created_utc": "yesterday"})
    (tmp_path / "cut.json").write_bytes((tmp_path / "good.json").read_bytes()[:500])
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "binary.json").write_bytes(bytes(range(256)))
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "link.json").symlink_to(tmp_path / "good.json")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "manifest.json").write_text('{\n "checksum": "0"')
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / "results.json").write_bytes((tmp_path / "good.json").read_bytes())
    (tmp_path / "notes").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "nested.json").write_bytes((tmp_path / "good.json").read_bytes())
    found = read_history(tmp_path)
    assert ids(found) == ["good"]
    reasons = dict(found.skipped)
    assert not [reason for reason in reasons.values() if str(tmp_path) in reason]
    assert reasons.keys() == {
        *(
            "newer.json",
            "timeless.json",
            "cut.json",
            "deep.json",
            "binary.json",
            "empty.json",
            "link.json",
            "pipe.json",
        ),
        *("begun", "good.json", "more"),
    }
    assert "results of version 99" in reasons["newer.json"]
    assert "is no ISO 8601 time" in reasons["timeless.json"]
    assert "a link" in reasons["link.json"]
    assert "a folder of runs" in reasons["more"]
    assert "not JSON" in reasons["begun"]
    assert reasons["good.json"] == SENTENCES["what_is_no_run_is_named_and_skipped"]
    assert all(len(reason) <= 300 for reason in reasons.values())
    assert read_history(tmp_path) == found


def test_text_that_cannot_be_utf_8_is_named_and_skipped(tmp_path: Path) -> None:
    """In a file, and as the name of one: the other runs are there."""
    keep(tmp_path, "good", 1)
    keep(tmp_path, "bad", 2, software_fields={"torch": "\ud800"})
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")).write_bytes((tmp_path / "good.json").read_bytes())
    found = read_history(tmp_path)
    assert ids(found) == ["good"]
    reasons = dict(found.skipped)
    assert reasons.keys() == {"bad.json", r"\udcff.json"}
    assert "software_fields.torch: holds half a character" in reasons["bad.json"]
    assert reasons[r"\udcff.json"] == SENTENCES["text_that_cannot_be_utf_8_is_named"]
    assert read_history(tmp_path) == found


def test_a_run_that_needs_too_much_memory_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs no other run its place."""

    def exhausted(_path: Path) -> Results:
        raise MemoryError

    keep(tmp_path, "a", 1)
    monkeypatch.setattr("pybench.nightly.history.results_of", exhausted)
    assert read_history(tmp_path).skipped == (("a.json", "cannot be judged: MemoryError: "),)


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    """Where, and what to give."""
    with pytest.raises(
        RunFolderError, match="cannot read the history: No such file or directory; give a folder of runs"
    ):
        read_history(tmp_path / "absent")
