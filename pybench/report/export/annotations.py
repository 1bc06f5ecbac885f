"""Findings as workflow commands of GitHub Actions, which keeps at most 10 annotations of a kind and step."""

from __future__ import annotations

from pybench.model.text import abridged
from pybench.report.run.findings import MOST_SUBJECTS, Finding, findings
from pybench.report.run.view import RunView
from pybench.report.table import printable
from pybench.report.text.labels import verdict_words

MOST = 10
_MOST_TEXT = 1000
_ERRORS = {"fail", "error", "missing"}


def render(view: RunView) -> str:
    """A line for each finding, the worst first; the last of ten counts the others. A pass is a notice."""
    results = view.results
    found = findings(view)
    shown = found if len(found) <= MOST else found[: MOST - 1]
    lines = [_line(finding) for finding in shown]
    if len(found) > len(shown):
        lines.append(command("warning", results.suite, f"{len(found) - len(shown)} more findings: see the report"))
    if not found:
        lines.append(command("notice", results.suite, f"{verdict_words(view.state)}: {view.reason}"))
    return "".join(f"{line}\n" for line in lines)


def _line(finding: Finding) -> str:
    title = f"{finding.verdict}: {finding.part or abridged(finding.subjects, MOST_SUBJECTS)}"
    text = finding.text() if finding.part else finding.reason
    text = f"{text}; next: {finding.step}" if finding.step else text
    return command("error" if finding.verdict in _ERRORS else "warning", title, text)


def command(kind: str, title: str, text: str) -> str:
    """A workflow command as the runner reads it: no ``%`` or line end in data, no ``:`` or ``,`` in a property."""
    data = printable(text)[:_MOST_TEXT].replace("%", "%25")
    value = printable(title)[:_MOST_TEXT].replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={value}::{data}"
