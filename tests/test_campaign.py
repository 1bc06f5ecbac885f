"""The plan of docs/results/README.md, run in the time there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.model.results import PointStatus
from pybench.report.formats import render
from pybench.report.run.view import RunView
from tests.builders import POINT_RESULT, RESULTS
from tests.docs_script import script

campaign = script("campaign")
ROWS = campaign.planned(campaign.PLAN.read_text(encoding="utf-8"))
TABLE = """
| `pybench run eight` | 8 | 1 | what |
| `pybench run four -k "a or b" --attempts 1` | 4 | 6 | what |
| `pybench run one` | 1 | 3 | what |
| `pybench run again --aa 10` | 1 h100 | 2 | what |
"""


def test_every_row_has_points_on_its_gpus() -> None:
    """``pybench plan`` shows points of each row on its kind, else on H200s; rows have different folders."""
    assert len({row.folder for row in ROWS}) == len(ROWS) > 20
    for row in ROWS:
        words = row.words[1:-2] if "--aa" in row.words else row.words[1:]
        shown = CliRunner().invoke(main, ("plan", *words, "--gpu", row.kind or "h200", "--gpus", str(row.num_gpus)))
        assert shown.exit_code == 0, shown.output
        assert not shown.output.rpartition("\n0 points")[1], shown.output


@pytest.mark.parametrize(
    ("num_gpus", "left_s", "names"),
    [
        (8, 900.0, ["eight", "four", "one", "again"]),
        (4, 500.0, ["four", "again"]),
        (4, 300.0, ["one", "again"]),
        (1, 119.0, []),
        (1, 900.0, ["one", "again"]),
    ],
)
def test_what_fits_is_started_in_order(num_gpus: int, left_s: float, names: list[str], tmp_path: Path) -> None:
    """Each takes what the table has for it."""
    started = []

    def start(row: Any, _left_s: float) -> float:
        started.append(row.words[1])
        return float(60 * row.minutes)

    campaign.campaign(campaign.planned(TABLE), tmp_path, num_gpus, left_s, start)
    assert started == names


@pytest.mark.parametrize(("kind", "names"), [("h100", ["one", "again"]), ("h200", ["one"]), (None, ["one", "again"])])
def test_a_row_for_one_kind_of_gpu_runs_there_alone(kind: str | None, names: list[str]) -> None:
    """The other kind has its figure. Where no kind is known, all are shown."""
    found = campaign.for_kind(campaign.planned(TABLE)[2:], kind)
    assert [row.words[1] for row in found] == names


def test_a_row_that_ended_is_not_run_again_and_one_that_began_is_finished(tmp_path: Path) -> None:
    """The newest of its runs; repeats are begun anew."""
    _, four, one, again = campaign.planned(TABLE)
    assert campaign.chosen((one, again), tmp_path, 1, 600.0) == one
    for row in (one, again):
        (tmp_path / row.folder / "20261124T090000Z-x").mkdir(parents=True)
        (tmp_path / row.folder / "20261124T090000Z-x" / "manifest.json").touch()
    (tmp_path / one.folder / campaign.ENDED).touch()
    assert campaign.chosen((one, again), tmp_path, 1, 600.0) == again
    folder = tmp_path / one.folder
    assert campaign.command(one, folder, 600.0) == ("run", "--resume", str(folder / "20261124T090000Z-x"))
    folder = tmp_path / again.folder
    limit = ("--time-limit", "10m")
    assert campaign.command(again, folder, 600.0) == ("run", "again", "--aa", "10", "--runs", str(folder), *limit)
    assert campaign.command(four, tmp_path / "f", 600.0) == (
        *("run", "four", "-k", "a or b", "--attempts", "1", "--runs", str(tmp_path / "f"), *limit),
    )


def test_a_command_that_measures_nothing_has_not_ended(tmp_path: Path) -> None:
    """A suite that is not there: its log has the reason."""
    (row,) = campaign.planned("| `pybench run no_such_suite` | 1 | 1 | what |")
    assert campaign.run(row, tmp_path / row.folder, 60.0) == 2
    assert "no_such_suite" in (tmp_path / row.folder / campaign.LOG).read_text()
    assert not (tmp_path / row.folder / campaign.ENDED).exists()


@pytest.mark.parametrize(
    ("code", "status", "ended"),
    [
        (1, "missing", False),
        (130, "ok", False),
        (-15, "ok", False),
        (1, "ok", True),
        (0, "ok", True),
        (3, "failed", True),
        (4, "skipped", True),
    ],
)
def test_what_had_no_time_is_gone_on_with(
    code: int, status: PointStatus, ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed expectation is a result, a point without an attempt is none."""
    (row,) = campaign.planned("| `pybench run one` | 1 | 1 | what |")
    (tmp_path / "one" / "20261124T090000Z-one").mkdir(parents=True)
    results = replace(
        RESULTS,
        points=(replace(POINT_RESULT, status=status),),
        verdict="error" if status == "failed" else "missing",
    )
    (tmp_path / "one" / "20261124T090000Z-one" / "results.json").write_text(render(RunView(results=results), "json"))
    monkeypatch.setattr(campaign.subprocess, "run", lambda *_any, **_options: SimpleNamespace(returncode=code))
    assert campaign.run(row, tmp_path / "one", 60.0) == code
    assert (tmp_path / "one" / campaign.ENDED).exists() == ended


def test_without_a_gpu_it_names_what_to_do(no_driver: None, tmp_path: Path) -> None:
    """The plan for GPUs that are elsewhere can be printed."""
    refused = CliRunner().invoke(campaign.main, (str(tmp_path), "--limit", "9m"))
    assert (refused.exit_code, "--gpus N --dry-run" in refused.output) == (2, True)
    shown = CliRunner().invoke(campaign.main, (str(tmp_path), "--limit", "9m", "--gpus", "1", "--dry-run"))
    assert (shown.exit_code, "pybench run " in shown.output.splitlines()[0]) == (0, True)
