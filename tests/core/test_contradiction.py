"""A kept results.json that somebody edited: nothing unmeasured is a pass, and what does not follow is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.core.counts import contradiction
from pybench.files.run.results_file import read_results
from pybench.files.shipped import shipped_suites
from pybench.model.errors import RunFolderError

KEPT = sorted((shipped_suites() / "measured").glob("*.json"))
SCALING, FIGURES, COMPARISONS = (
    "tp_scaling-h200x4-20261121", "tp_scaling-h200x2-20261122", "tp_vs_pp_energy-h200x2-20261121",
)  # fmt: skip
NODE = "node_check-h200x4-20261121"
LISTS = ("points", "scaling", "checks", "comparisons", "node", "claims", "jobs")
Values = dict[str, Any]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_results_of_every_day_are_read(path: Path) -> None:
    """By the rules that all statistics and words had in common."""
    assert contradiction(read_results(path)) is None


def _nothing(values: Values) -> None:
    values.update({name: [] for name in LISTS})


def _no_rows(values: Values) -> None:
    values.update(scaling=[], counts=dict.fromkeys(values["counts"], 0))


def _unmeasured(values: Values) -> None:
    """Every point lost its figures, and the rows keep their words."""
    for point in values["points"]:
        point["metrics"] = {}


def _ratio(values: Values, ratio: float) -> None:
    """Of the first row, with figures of its point that fit."""
    row = values["scaling"][0]
    factor = ratio / row["speedup"]
    point = next(point for point in values["points"] if point["id"] == row["point_id"])
    point["metrics"][row["metric"]]["value"] *= factor
    row["speedup"] = ratio


def _first(values: Values, name: str, verdict: str = "pass") -> Values:
    return next(row for row in values[name] if row["verdict"] == verdict)


def _passed_check(values: Values, **changed: Any) -> None:
    _first(values, "checks").update(changed)


def _beyond_limit(values: Values) -> None:
    """Its limit is twice its figure, so the figure is below it."""
    row = _first(values, "checks")
    row.update(minimum=2 * row["value"]["value"], maximum=None)


def _interval(values: Values) -> None:
    values["scaling"][0].update(speedup_low=0.1, speedup_high=0.2)


def _hidden(values: Values) -> None:
    """A row that was judged becomes one that nothing is expected of."""
    values["scaling"][0]["verdict"] = "no_expectation"


def _failed_point(values: Values) -> None:
    values["points"][0]["status"] = "failed"


def _inconclusive(values: Values) -> None:
    values.update(verdict="pass")


EDITS: dict[str, tuple[str, Callable[[Values], object], str]] = {
    "nothing but the verdict": (SCALING, _nothing, "counts.passed: 4 is claimed, its rows have 0"),
    "no rows": (SCALING, _no_rows, "verdict: pass is claimed, no_expectation follows from its rows and points"),
    "no figures": (SCALING, _unmeasured, "scaling.0: a pass without output_tokens_per_s of decode"),
    "a ratio": (
        SCALING,
        lambda v: v["scaling"][0].update(speedup=0.1),
        "scaling.0: a pass whose figure 0.1 is outside its limits, 1.235",
    ),
    "a ratio and its point": (
        SCALING,
        lambda v: _ratio(v, 0.1),
        "scaling.0: a pass whose figure 0.1 is outside its limits, 1.235 to",
    ),
    "an interval": (SCALING, _interval, "scaling.0: a pass whose figure 1.31761 is outside its limits"),
    "no limit": (SCALING, lambda v: v["scaling"][0].update(expected=None), "scaling.0: a pass without a limit"),
    "another metric": (
        SCALING,
        lambda v: v["scaling"][0].update(metric="made_up", speedup=None),
        "scaling.0: a pass without made_up of decode",
    ),
    "another point": (SCALING, lambda v: v["scaling"][0].update(point_id="x"), "scaling.0: x is none of the points"),
    "another baseline": (SCALING, lambda v: v["scaling"][0].update(baseline_id="x"), "scaling.0: x is none of the"),
    "a failed point": (SCALING, _failed_point, "scaling.0: a pass without a measurement of decode"),
    "a hidden row": (SCALING, _hidden, "counts.passed: "),
    "more passes": (SCALING, lambda v: v["counts"].update(passed=6, judged=6), "counts.passed: 6 is claimed"),
    "fails that no row has": (SCALING, lambda v: v["counts"].update(failed=1), "counts.failed: 1 is claimed"),
    "judged rows": (SCALING, lambda v: v["counts"].update(judged=6), "counts.judged: 6 is not the sum of"),
    "expected rows": (SCALING, lambda v: v["counts"].update(expected=4), "counts.expected: 4 is not the sum of"),
    "no figure": (FIGURES, lambda v: _passed_check(v, value=None), "a pass without a figure"),
    "another limit": (FIGURES, _beyond_limit, "is outside its limits"),
    "no limits": (FIGURES, lambda v: _passed_check(v, minimum=None, maximum=None), "a pass without a limit"),
    "a better verdict": (COMPARISONS, _inconclusive, "verdict: pass is claimed, inconclusive follows"),
    "another order": (
        COMPARISONS,
        lambda v: v["comparisons"][0].update(order="above"),
        "comparisons.0: a pass whose figure 0.907172 is outside its limits, 1 to",
    ),
    "another other": (COMPARISONS, lambda v: v["comparisons"][0].update(other_id="x"), "comparisons.0: x is none of"),
    "a slow GPU": (
        NODE,
        lambda v: next(row for row in v["node"] if row["name"] == "slowest").update(value=-0.5),
        "a pass whose figure -0.5 is outside its limits",
    ),
}


def edited(folder: Path, name: str) -> tuple[Path, str]:
    """A kept file after one of the edits, and the expected words."""
    kept, change, words = EDITS[name]
    values = json.loads((shipped_suites() / "measured" / f"{kept}.json").read_text())
    change(values)
    file = folder / "results.json"
    file.write_text(json.dumps(values))
    return file, words


@pytest.mark.parametrize("name", EDITS)
def test_what_does_not_follow_is_refused(tmp_path: Path, name: str) -> None:
    """With its place, and what to do next."""
    file, words = edited(tmp_path, name)
    with pytest.raises(RunFolderError) as caught:
        read_results(file)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{file}: ")
    assert str(caught.value).endswith("edited or damaged; rebuild it with: pybench report RUN --format json")


@pytest.mark.parametrize("command", ["report", "gate", "compare"])
def test_no_command_shows_a_pass_of_nothing(tmp_path: Path, command: str) -> None:
    """All of them read results in one place."""
    file, words = edited(tmp_path, "nothing but the verdict")
    kept = str(shipped_suites() / "measured" / f"{SCALING}.json")
    others = {"report": (), "gate": ("--history", str(tmp_path)), "compare": (kept,)}
    done = CliRunner().invoke(main, [command, str(file), *others[command]])
    assert done.exit_code not in {0, 1}
    assert "pass" not in done.stdout
    assert words.partition(": ")[0] in done.output


def test_owed_attempts_are_known_to_the_plan_alone(tmp_path: Path) -> None:
    """An interrupted run, whose rows all pass, is missing."""
    values = json.loads((shipped_suites() / "measured" / f"{SCALING}.json").read_text())
    values.update(verdict="missing", reason="2 attempts to be made")
    file = tmp_path / "results.json"
    file.write_text(json.dumps(values))
    assert read_results(file).verdict == "missing"


def test_an_image_that_is_not_pinned_keeps_a_pass_open(tmp_path: Path) -> None:
    """It cannot be run again: the rows pass, and the run does not."""
    kept = next(path for path in KEPT if path.stem == SCALING)
    values = json.loads(kept.read_text())
    values["provenance"]["containment"] = {
        "engine": "docker", "engine_version": "1", "images": [], "pinned": False, "relaxations": [],
    }  # fmt: skip
    file = tmp_path / "results.json"
    file.write_text(json.dumps(values))
    with pytest.raises(RunFolderError, match="verdict: pass is claimed, inconclusive follows"):
        read_results(file)
    file.write_text(json.dumps({**values, "verdict": "inconclusive"}))
    assert read_results(file).verdict == "inconclusive"
