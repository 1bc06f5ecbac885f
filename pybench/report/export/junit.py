"""JUnit XML for CI systems: a test case for every point, scaling row, limit, order, node check and the verdict."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from pybench.model.results import PointResult
from pybench.model.verdict import Verdict
from pybench.report.run.findings import findings
from pybench.report.run.view import RunView

# Characters that XML 1.0 excludes, escaped or not, and those that are invisible or change the direction of text.
_UNFIT = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    "|[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)

_MOST_SUBJECTS = 4

# CI must not read a failure as a pass: only `pass` leaves a case without a mark. A point that this machine can't run is
# skipped; the expectation that needs it is missing, and so a failure.
_MARKS: dict[Verdict, str | None] = {
    "pass": None,
    "no_expectation": "skipped",
    "fail": "failure",
    "inconclusive": "failure",
    "missing": "failure",
    "error": "error",
}


def render(view: RunView) -> str:
    """Render one ``testsuite`` per run."""
    results = view.results
    suite = ET.Element("testsuite", name=_clean(results.suite))
    for point in results.points:
        _point(suite, point)
    for row in results.scaling:
        name = f"{row.metric} {row.baseline_count} to {row.count} GPUs"
        _case(suite, row.point_id, name, _MARKS[row.verdict], row.verdict, row.reason)
    for check in results.checks:
        _case(suite, check.point_id, f"{check.metric} limits", _MARKS[check.verdict], check.verdict, check.reason)
    for order in results.comparisons:
        name = f"{order.metric} {order.wanted} {order.other_id}"
        _case(suite, order.point_id, name, _MARKS[order.verdict], order.verdict, order.reason)
    for node in results.node:
        name = f"{node.name} {node.subject}"
        _case(suite, node.point_id or results.suite, name, _MARKS[node.verdict], node.verdict, node.reason)
    for number, finding in enumerate(found for found in findings(view) if found.evidence):
        text = "\n".join((*finding.evidence, *([f"next: {finding.step}"] if finding.step else [])))
        name = f"{finding.part} fault {number + 1}"
        _case(suite, results.suite, name, "failure", finding.verdict, finding.text(_MOST_SUBJECTS), text)
    # Without a case of its own, a run that could only skip would look green.
    mark = "failure" if results.num_owed else _MARKS[results.verdict]
    _case(suite, results.suite, "verdict", mark, view.state, view.reason)
    cases = list(suite)
    suite.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    root = ET.Element("testsuites", name="pybench")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _point(suite: ET.Element, point: PointResult) -> None:
    marks = {"failed": "error", "missing": "failure", "skipped": "skipped", "does_not_fit": "skipped"}
    mark = marks.get(point.status)
    _case(suite, point.id, "measure", mark, point.status, point.reason or "")


def _case(
    suite: ET.Element, point_id: str, name: str, mark: str | None, kind: str, reason: str, text: str = ""
) -> None:
    case = ET.SubElement(suite, "testcase", classname=_clean(point_id), name=_clean(name))
    if mark is not None:
        found = ET.SubElement(case, mark, message=_clean(reason))
        if mark != "skipped":
            found.set("type", kind)
        if text:
            found.text = _clean(text)


def _clean(text: str) -> str:
    return _UNFIT.sub("?", text)
