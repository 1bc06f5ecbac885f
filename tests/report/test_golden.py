"""Each format against a file that a person has read.

After a wanted change, write the files anew with ``PYBENCH_UPDATE_GOLDEN=1 pytest tests/report/test_golden.py`` and read
their diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pybench.model.results import Results
from pybench.report.formats import FORMATS, REPORT_FILES, render
from pybench.report.run.view import RunView

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize(
    ("name", "options", "file"),
    [
        ("terminal", {"width": 80}, "terminal_80.txt"),
        ("terminal", {"width": 80, "detail": True}, "terminal_80_detail.txt"),
        ("json", {}, "results.json"),
        ("junit", {}, "junit.xml"),
        ("markdown", {}, "summary.md"),
    ],
)
def test_report_matches_its_golden_file(results: Results, name: str, options: dict[str, object], file: str) -> None:
    """The report of the hand-made results, to the byte."""
    actual = render(RunView(results=results), name, **options)
    if os.environ.get("PYBENCH_UPDATE_GOLDEN"):
        (GOLDEN / file).write_text(actual, encoding="utf-8")
    assert (GOLDEN / file).read_text(encoding="utf-8") == actual


_TEXT_FORMATS = {name for name, entry in FORMATS.items() if entry.output == "text"}
_NEED_ATTEMPTS = {"openmetrics", "pytest-benchmark"}
"""These refuse a run without an attempt that ended; tests/report/test_export.py has their hostile text."""


@pytest.mark.parametrize("name", sorted(_TEXT_FORMATS - _NEED_ATTEMPTS))
def test_every_format_shows_nothing_and_hostile_text(name: str, empty: Results, hostile: Results) -> None:
    """No content keeps a report from being written, and each ends in one newline."""
    for shown in (empty, hostile):
        text = render(RunView(results=shown), name)
        assert text.encode("utf-8").endswith(b"\n")


def test_every_kept_report_has_a_format() -> None:
    """A run's folder holds what ``--format`` can rebuild."""
    assert set(REPORT_FILES) <= set(FORMATS)
