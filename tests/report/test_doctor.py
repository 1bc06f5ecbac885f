"""The doctor's report."""

from __future__ import annotations

from pybench.model.machine import DoctorFinding
from pybench.report.plan import render_findings


def test_states_line_up_and_remedies_follow() -> None:
    """The verdict first; names as wide as the widest."""
    findings = (
        DoctorFinding(name="GPUs", state="ok", found="2"),
        DoctorFinding(name="shared memory", state="warning", found="64 MiB", remedy="mount it larger"),
    )
    assert render_findings(findings) == (
        "ready; 1 warning\n"
        "ok       GPUs           2\n"
        "warning  shared memory  64 MiB\n"
        "                        -> mount it larger\n"
    )


def test_what_is_missing_is_named_first() -> None:
    """All of it; a machine that lacks something is not ready."""
    findings = tuple(DoctorFinding(name=name, state="missing", found="none", remedy="r") for name in ("GPUs", "disk"))
    assert render_findings(findings).startswith("not ready, missing: GPUs, disk; no warnings\n")


def test_no_line_is_wider_than_the_terminal() -> None:
    """Further lines are indented below the first; a path stays whole."""
    path = "/" + "p" * 60
    findings = (
        DoctorFinding(name="images", state="warning", found="none of the five is here", remedy=f"pull {path} now"),
    )
    assert render_findings(findings, width=37).splitlines()[1:] == [
        "warning  images  none of the five is",
        "                 here",
        "                 -> pull",
        f"                    {path}",
        "                    now",
    ]


def test_nothing_was_looked_at() -> None:
    """No finding, no error."""
    assert render_findings(()) == "ready; no warnings\n"
