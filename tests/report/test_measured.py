"""Results of real machines that are kept with the suites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pybench.files.shipped import shipped_suites
from pybench.report.formats import render
from pybench.report.run.view import RunView
from tests.report.kept import KEPT

# Annotations show what did not pass; other programs' formats have their own names, and some need more than is kept.
NAMING = ("terminal", "json", "junit", "markdown", "html", "csv")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_can_be_shown(path: Path) -> None:
    """By every format, each benchmark that was measured by its name."""
    view = RunView.of_file(path)
    measured = {point.benchmark for point in view.results.points if point.metrics}
    for name in NAMING:
        text = render(view, name).replace("\\", "")
        assert [benchmark for benchmark in measured if benchmark not in text] == [], name


@pytest.mark.parametrize("path", [path for path in KEPT if path.stem.startswith("turns_")], ids=lambda path: path.stem)
def test_a_turn_and_a_phase_are_one_line_on_80_columns(path: Path) -> None:
    """A phase begins with its point and name in two tables: memory, and energy."""
    view = RunView.of_file(path)
    lines = render(view, "terminal", detail=True).splitlines()
    heads = next(place for place, line in enumerate(lines) if line.startswith("Turns: "))
    for number, point in enumerate(view.results.points):
        assert lines[heads + 3 + number].split()[0] == point.benchmark
        found = [line for line in lines if re.match(rf"{point.benchmark} +trainer_offload +[\d.]+ m?s ", line)]
        assert len(found) == 2


def test_a_claim_of_one_attempt_has_its_ratio_and_its_source() -> None:
    """An unknown interval is left empty; the source of a claim is no reason for a verdict."""
    text = render(RunView.of_file(shipped_suites() / "measured" / "unsloth_scaling-h200x1-20261122.json"), "terminal")
    claim = " ".join(text.partition("Claims of tokens_per_s, which judge nothing\n")[2].partition("\n\n")[0].split())
    reason = "one attempt shows no spread between runs; two are needed"
    assert f"unsloth above plain 1.257x open {reason} SFT-Play, multi-GPU guide" in claim
