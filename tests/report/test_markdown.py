"""The Markdown summary."""

from __future__ import annotations

import re

import pytest

from pybench.model.results import Results
from pybench.report.run.markdown import escape, render
from pybench.report.run.view import RunView


def _tables(text: str) -> list[list[str]]:
    return [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]


@pytest.mark.parametrize(("fixture", "num_tables"), [("results", 11), ("hostile", 7)])
def test_every_row_has_as_many_cells_as_its_head(fixture: str, num_tables: int, request: pytest.FixtureRequest) -> None:
    """No content opens or closes a cell."""
    tables = _tables(render(RunView(results=request.getfixturevalue(fixture))))
    assert len(tables) == num_tables
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1


def test_no_row_is_dropped(results: Results) -> None:
    """Skipped, failed and missing points are rows of the same table."""
    lines = [len(table) - 2 for table in _tables(render(RunView(results=results)))]
    assert lines == [5, 2, 6, 3, 3, 2, 1, 2, 1, 3, 2]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("a\nb", "a b"),
        ("`x`", r"\`x\`"),
        ("<b>", r"\<b\>"),
        ("[t](u)", r"\[t\](u)"),
        ("a\\|b", r"a\\\|b"),
        ("\x1b[31m", r" \[31m"),
        ("a&lt;b", "a\\&lt;b"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    """What Markdown would act on, it shows."""
    assert escaped == escape(text)


def test_nothing_measured_still_says_so(empty: Results) -> None:
    """The verdict is the headline."""
    assert render(RunView(results=empty)).startswith("## suite: missing\n")
