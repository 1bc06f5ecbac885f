"""What keeps a run from a pass, as a reader sees it."""

from __future__ import annotations

from pybench.report.findings import Finding, each_step_once


def _finding(reason: str, step: str | None) -> Finding:
    return Finding("missing", reason, ("a",), step)


def test_a_step_stands_below_the_last_of_the_findings_it_follows() -> None:
    """Where another step comes between, it is repeated: a reader would take the other for it."""
    found = (
        _finding("one", "finish the run"),
        _finding("two", "finish the run"),
        _finding("three", "write rows"),
        _finding("four", None),
        _finding("five", "finish the run"),
    )
    shown = each_step_once(found)
    assert [finding.step for finding in shown] == [None, "finish the run", "write rows", None, "finish the run"]
    assert [finding.reason for finding in shown] == ["one", "two", "three", "four", "five"]
    assert each_step_once(()) == ()
