"""Rows that a product judged, such as a night's, where CI shows them: Markdown, annotations, JUnit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from pybench.report.export.annotations import MOST, command
from pybench.report.export.junit import clean, document
from pybench.report.run.markdown import escape

_FAILS, _WARNS = frozenset({"regressed", "not measured", "incomparable"}), frozenset({"pass", "unchanged", "improved"})


@dataclass(frozen=True, kw_only=True)
class JudgedRow:
    """One row: its name, its state, and the figures or the reason."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The judged run: state, reason, next step, and rows, the most important first."""

    title: str
    run_id: str
    state: str
    reason: str
    step: str | None
    rows: tuple[JudgedRow, ...]

    @property
    def telling(self) -> tuple[JudgedRow, ...]:
        """The rows that somebody should read; learning is a state of the history, not of a row."""
        return tuple(row for row in self.rows if row.state not in {"pass", "unchanged", "learning"})


def markdown(judged: Judged) -> str:
    """State, next step, and a table of the rows that do not simply pass."""
    lines = [f"## {escape(judged.title)}: {judged.state}", "", f"{escape(judged.reason)} (run {escape(judged.run_id)})"]
    if judged.step:
        lines += ["", f"**next:** {escape(judged.step)}"]
    if judged.telling:
        lines += ["", "| row | state | figures |", "|---|---|---|"]
        lines += [f"| {escape(row.name)} | {row.state} | {escape(row.text)} |" for row in judged.telling]
    return "\n".join(lines) + "\n"


def annotation_lines(judged: Judged) -> str:
    """A line for each row that does not pass, and one for the state with what to do next; ten at most."""
    shown = judged.telling[: MOST - 1]
    lines = [command(_kind(row.state), f"{row.state}: {row.name}", row.text) for row in shown]
    step = f"; next: {judged.step}" if judged.step else ""
    lines.append(command(_kind(judged.state), f"{judged.title}: {judged.state}", f"{judged.reason}{step}"))
    return "".join(f"{line}\n" for line in lines)


def junit(judged: Judged) -> str:
    """A test case for each row, and one for the state."""
    suite = ET.Element("testsuite", name=judged.title)
    step = f"next: {judged.step}" if judged.step else ""
    rows = ((row.name, row.state, row.text, row.text) for row in judged.rows)
    for name, state, reason, text in (*rows, ("verdict", judged.state, judged.reason, step)):
        case = ET.SubElement(suite, "testcase", classname=clean(judged.title), name=clean(name))
        if mark := "failure" if state in _FAILS else None if state in _WARNS else "skipped":
            ET.SubElement(case, mark, message=clean(reason), type=state).text = clean(text)
    return document(suite)


FORMATS: dict[str, Callable[[Judged], str]]
FORMATS = {"markdown": markdown, "github-annotations": annotation_lines, "junit": junit}


def _kind(state: str) -> str:
    return "error" if state in _FAILS else "notice" if state in _WARNS else "warning"
