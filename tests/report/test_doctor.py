"""The doctor's report."""

from __future__ import annotations

from pybench.model.machine import Finding
from pybench.report.doctor import render


def test_states_line_up_and_remedies_follow() -> None:
    """Names as wide as the widest."""
    findings = (
        Finding(name="GPUs", state="ok", found="2"),
        Finding(name="shared memory", state="warning", found="64 MiB", remedy="mount it larger"),
    )
    assert render(findings) == (
        "ok       GPUs           2\nwarning  shared memory  64 MiB\n                        -> mount it larger\n"
    )


def test_nothing_was_looked_at() -> None:
    """One empty line, no error."""
    assert render(()) == "\n"
