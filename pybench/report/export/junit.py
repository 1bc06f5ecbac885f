"""JUnit XML for CI systems: a test case for every point, scaling row, limit, order, node check and the verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from pybench.core.numbers import quantity
from pybench.model.record import Record
from pybench.model.results import CheckResult, ComparisonResult, NodeCheck, Results, ScalingResult
from pybench.model.verdict import Verdict
from pybench.report.run.findings import findings
from pybench.report.run.view import RunView

# Characters that XML 1.0 excludes, escaped or not, and those that are invisible or change the direction of text.
_UNFIT = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    "|[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)

# A point that this machine can't run is skipped; the expectation that needs it is missing, and so a failure. An
# undecided expectation is no failed test: the gate decides about it.
_MARKS: dict[Verdict, str | None] = {
    "pass": None,
    "no_expectation": "skipped",
    "fail": "failure",
    "inconclusive": "skipped",
    "missing": "failure",
    "error": "error",
}
_STATUS_MARKS = {"failed": "error", "missing": "failure", "skipped": "skipped", "does_not_fit": "skipped"}


def render(view: RunView, *, inconclusive: str = "skipped") -> str:
    """Render one ``testsuite`` per run; ``inconclusive`` is the mark of undecided rows."""
    results, marks = view.results, {**_MARKS, "inconclusive": inconclusive}
    made = results.provenance
    # Time, host and software of the run. The time is UTC: the format has no place for a zone.
    timestamp, hostname = made.created_utc[: len("2026-01-31T12:00:00")], ", ".join(made.hosts) or results.machine
    suite = ET.Element("testsuite", name=clean(results.suite), timestamp=timestamp, hostname=clean(hostname))
    properties = ET.SubElement(suite, "properties")
    values = {
        "run": results.run_id,
        "profile": results.profile,
        "machine": results.machine,
        "gpus": ", ".join(f"{count}x {name}" for name, count in Counter(made.gpu_names).items()),
        "driver": made.driver,
        "engine": made.engine,
        "pybench": made.pybench_version,
        "verdict": results.verdict,
    }
    for name, value in values.items():
        if value:
            ET.SubElement(properties, "property", name=name, value=clean(value))
    benchmarks = {point.id: point.benchmark for point in results.points}

    def case(point_id: str, name: str, mark: str | None, kind: str, reason: str, text: str = "") -> ET.Element:
        # Viewers split the class at its last dot: the suite is the package, the benchmark the class.
        words = (results.suite, benchmarks.get(point_id, "run"))
        classname = ".".join(clean(word).replace(".", "_") for word in words)
        title = name if point_id == results.suite else f"{point_id} {name}"
        element = ET.SubElement(suite, "testcase", classname=classname, name=clean(title))
        if mark is None:
            ET.SubElement(element, "system-out").text = clean(reason).expandtabs(1)
        else:
            child = ET.SubElement(element, mark, message=clean(reason))
            if mark != "skipped":
                child.set("type", kind)
                child.text = clean(text or reason).expandtabs(1)
        return element

    for point in results.points:
        figures = "\n".join(f"{name}: {quantity(value)}" for name, value in point.metrics.items())
        reason = point.reason or figures
        element = case(point.id, "measure", _STATUS_MARKS.get(point.status), point.status, reason)
        _set_time(element, [record for record in view.records if record.point_id == point.id])
    for point_id, name, row in _rows(results):
        case(point_id, name, marks[row.verdict], row.verdict, row.reason)
    for number, finding in enumerate(each for each in findings(view) if each.evidence):
        text = "\n".join((*finding.evidence, *([f"next: {finding.step}"] if finding.step else [])))
        mark = inconclusive if finding.verdict == "inconclusive" else "failure"
        name, reason = f"{finding.part} fault {number + 1}", finding.text()
        case(results.suite, name, mark, finding.verdict, reason, text)
    # Without a case of its own, a run that owes attempts would look green.
    of_run = "failure" if results.num_owed else marks[results.verdict]
    case(results.suite, "verdict", of_run, view.state, view.reason)
    _set_time(suite, view.records)
    return document(suite)


def document(suite: ET.Element) -> str:
    """The file of one ``testsuite``, with the number of its cases."""
    suite.set("tests", str(len(suite.findall("testcase"))))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    root = ET.Element("testsuites", name="pybench")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _rows(results: Results) -> Iterator[tuple[str, str, ScalingResult | CheckResult | ComparisonResult | NodeCheck]]:
    """Everything judged: its point, or the suite, the name of its case, and the row."""
    for row in results.scaling:
        yield row.point_id, f"{row.metric} {row.baseline_count} to {row.count} GPUs", row
    for check in results.checks:
        yield check.point_id, f"{check.metric} limits", check
    for order in results.comparisons:
        yield order.point_id, f"{order.metric} {order.wanted} {order.other_id}", order
    for node in results.node:
        yield node.point_id or results.suite, f"{node.name} {node.subject}", node


def _set_time(element: ET.Element, records: Sequence[Record]) -> None:
    """Time of attempts in s; unknown without a run's folder."""
    if records:
        element.set("time", f"{sum(record.duration_s for record in records):.3f}")


def clean(text: str) -> str:
    """Text that XML may hold."""
    return _UNFIT.sub("?", text)
