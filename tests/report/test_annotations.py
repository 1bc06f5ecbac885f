"""Annotations of a GitHub job, and the summary's limit."""

from __future__ import annotations

import dataclasses
import re

from pybench.model.results import Results
from pybench.report.export.annotations import MOST
from pybench.report.formats import render
from pybench.report.run.markdown import MOST_BYTES
from pybench.report.run.view import RunView
from tests.report.conftest import HOSTILE

_COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\n]*)::([^\n]*)")


def _lines(results: Results) -> list[tuple[str, str, str]]:
    text = render(RunView(results=results), "github-annotations")
    found = [_COMMAND.fullmatch(line) for line in text.splitlines()]
    assert all(found)
    return [(match[1], match[2], match[3]) for match in found if match]


def test_what_did_not_pass_is_annotated_the_worst_first(results: Results) -> None:
    """Errors before warnings; an inconclusive row is a warning."""
    kinds = [kind for kind, _, _ in _lines(results)]
    assert set(kinds) == {"error", "warning"}
    assert kinds == sorted(kinds)
    assert len(kinds) <= MOST


def test_more_findings_than_github_shows_are_counted(results: Results) -> None:
    """Nine and a tenth line for the rest: 30 limits that were missed, each for a reason of its own."""
    check = dataclasses.replace(results.checks[0], verdict="fail")
    checks = tuple(dataclasses.replace(check, reason=f"reason {number}") for number in range(30))
    few = dataclasses.replace(results, points=(), scaling=(), comparisons=(), node=(), checks=checks)
    lines = _lines(few)
    assert len(lines) == MOST
    assert lines[-1] == ("warning", few.suite, "21 more findings: see the report")


def test_a_pass_is_a_notice(empty: Results) -> None:
    """One line says that it was judged, so that silence is never taken for a pass."""
    (line,) = _lines(dataclasses.replace(empty, verdict="pass", reason="every expectation passes"))
    assert line == ("notice", empty.suite, "pass: every expectation passes")


def test_text_stays_in_its_annotation(hostile: Results) -> None:
    """No line of a worker begins a command of its own; per cent signs are escaped."""
    points = tuple(
        dataclasses.replace(p, reason=f"::set-output name=x::50%\n::error::{HOSTILE}") for p in hostile.points
    )
    lines = _lines(dataclasses.replace(hostile, points=points))
    assert any("50%25 ::error::" in text for _, _, text in lines)
    assert not any("\r" in text or "\n" in text for _, _, text in lines)


def test_a_summary_stays_below_the_limit_of_a_job(results: Results) -> None:
    """Failures come first; the findings beyond the limit are counted."""
    point = next(point for point in results.points if point.status == "ok")
    many = tuple(dataclasses.replace(point, id=f"{point.id}{number}{'x' * 400}") for number in range(3000))
    text = render(RunView(results=dataclasses.replace(results, points=(*results.points, *many))), "markdown")
    assert len(text.encode()) < MOST_BYTES + 200
    assert re.search(r"\n\d+ more lines are left out; report.html", text)
    assert text.index("### What did not pass") < text.index("### ", text.index("### What did not pass") + 4)
