"""A worker that prints its environment: the secret it was given is in nothing that stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main

Drill = Callable[..., tuple[str, ...]]
SECRET = "hf_s3cret-Value"  # nothing else here is spelled so


def ask_for_it(here: Path) -> None:
    suite = (here / "drill.toml").read_text()
    (here / "drill.toml").write_text(
        suite.replace("[[benchmark]]", '[container]\nsecrets = ["HF_TOKEN"]\n\n[[benchmark]]', 1)
    )


def test_a_secret_stays_nowhere(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the log, the record, the exchange folder, a report, or on the terminal; the rest of the log is there."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    arguments = drill("leak")
    ask_for_it(here)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3
    assert "can't log in with ***" in result.output
    assert SECRET not in result.output
    (run,) = (here / "runs").iterdir()
    logs = [path.read_text() for path in run.rglob("worker.log")]
    assert len(logs) == 4
    assert all("'HF_TOKEN': '***'" in log for log in logs)
    assert [path for path in run.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
    assert (next(run.rglob("notes.txt"))).read_text() == "the token is ***\n"


def test_a_secret_that_is_a_word_of_the_suite(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attempts are those of the plan, and the run ends."""
    monkeypatch.setenv("HF_TOKEN", "decode")
    arguments = drill()
    ask_for_it(here)
    assert CliRunner().invoke(main, (*arguments, "--time-limit", "30s")).exit_code == 0
    (run,) = (here / "runs").iterdir()
    records = [json.loads(line)["record"] for line in (run / "journal.jsonl").read_text().splitlines()]
    assert [record["point_id"][-2] for record in records] == ["1", "2", "2", "1"]
    assert all((run / record["log"]).exists() for record in records)


def test_a_secret_that_was_not_asked_for_reaches_no_worker(
    here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a container, too."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert CliRunner().invoke(main, drill("leak")).exit_code == 3
    (run,) = (here / "runs").iterdir()
    assert "KeyError: 'HF_TOKEN'" in next(run.rglob("worker.log")).read_text()
