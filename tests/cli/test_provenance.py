"""Provenance: the variables and packages of the workers, in every file of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main

Drill = Callable[..., tuple[str, ...]]


def run_folder(here: Path) -> Path:
    (run,) = (here / "runs").iterdir()
    return run


def test_a_variable_that_tunes_workers_is_recorded(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the manifest, in results.json and in the printed report; a credential's value nowhere.

    A benchmark's own stand among its settings, and are the workers' over the shell's.
    """
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_NET_AUTH", "s3cret")
    monkeypatch.setenv("UNRELATED", "shell")
    own = "NCCL_ALGO=Tree NCCL_PROTO=LL"
    seen = drill(FAKE_NAME="$NCCL_ALGO+$NCCL_PROTO")
    result = CliRunner().invoke(main, (*seen, "--set", f"environment={own}"))
    assert result.exit_code == 0, result.output
    run = run_folder(here)
    assert {point["settings"]["environment"] for point in json.loads((run / "results.json").read_text())["points"]} == {
        own
    }
    assert (run / "journal.jsonl").read_text().count('"device_name": "Tree+LL"') >= 1
    for file, place in (("manifest.json", ()), ("results.json", ("provenance",))):
        found = json.loads((run / file).read_text())
        for name in place:
            found = found[name]
        assert found["environment"]["NCCL_ALGO"] == "Ring"
        assert "NCCL_NET_AUTH" not in found["environment"], "what looks like a credential reaches no worker"
        assert "UNRELATED" not in found["environment"]
    assert "set (-v lists)" in " ".join(result.output.split())
    assert "NCCL_ALGO=Ring" in CliRunner().invoke(main, ("report", str(run), "-v")).output
    assert not any("s3cret" in path.read_text(errors="replace") for path in run.rglob("*.json*"))


def test_runs_under_other_variables_have_another_software_key(
    here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one machine: its fingerprint stays."""
    keys = []
    for algorithm in ("Ring", "Tree"):
        monkeypatch.setenv("NCCL_ALGO", algorithm)
        assert CliRunner().invoke(main, (*drill(), "--runs", algorithm)).exit_code == 0
        (run,) = (here / algorithm).iterdir()
        results = json.loads((run / "results.json").read_text())
        keys.append((results["fingerprint"], results["software_key"]))
    assert keys[0][0] == keys[1][0]
    assert keys[0][1] != keys[1][1]


def test_a_run_does_not_go_on_under_other_variables(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3 and one line with both values."""
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    assert CliRunner().invoke(main, drill()).exit_code == 0
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    result = CliRunner().invoke(main, ["run", "--resume", str(run_folder(here)), "--python", str(here / "python")])
    assert result.exit_code == 3
    assert "(NCCL_ALGO: Ring -> Tree)" in result.stderr
