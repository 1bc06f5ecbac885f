"""JUnit XML, read back."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as ET

import pytest

from pybench.model.results import Results
from pybench.model.verdict import Verdict
from pybench.report.export.junit import render
from pybench.report.run.view import RunView

_TAGS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def _suite(results: Results, **options: str) -> ET.Element:
    suite = ET.fromstring(render(RunView(results=results), **options)).find("testsuite")
    assert suite is not None
    return suite


def _cases(results: Results, **options: str) -> list[ET.Element]:
    return _suite(results, **options).findall("testcase")


def test_counts_are_those_of_the_cases(results: Results) -> None:
    """5 points, 6 scaling rows, 3 limits, 3 orders, 2 checks and a fault of the node, the verdict; by hand."""
    suite = _suite(results)
    counts = {name: int(suite.attrib[name]) for name in ("tests", *_TAGS)}
    assert counts == {"tests": 21, "failures": 9, "errors": 2, "skipped": 4}
    cases = suite.findall("testcase")
    assert counts == {"tests": len(cases), **{name: len(suite.findall(f"*/{tag}")) for name, tag in _TAGS.items()}}


def test_what_is_undecided_fails_on_request(results: Results) -> None:
    suite = _suite(results, inconclusive="failure")
    assert {name: suite.attrib[name] for name in _TAGS} == {"failures": "11", "errors": "2", "skipped": "2"}


def test_a_case_shows_its_figures(results: Results) -> None:
    """A point has its metrics, a row its figure and limit, the suite its time, machine and software."""
    cases = _cases(results)
    assert "ttft_s: 12.3 ms" in (cases[0].findtext("system-out") or "")
    passed = next(row for row in results.scaling if row.verdict == "pass")
    assert cases[len(results.points)].findtext("system-out") == passed.reason
    suite = _suite(results)
    assert suite.attrib["timestamp"] == results.provenance.created_utc[:19]
    properties = {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
    assert properties["pybench"] == results.provenance.pybench_version


def test_a_class_has_one_dot(results: Results) -> None:
    """Viewers show what is before a class's last dot as its package."""
    point = dataclasses.replace(results.points[0], benchmark="open.loop", id="open.loop[rate=32.0]")
    (first, *_) = _cases(dataclasses.replace(results, points=(point,), scaling=(), checks=(), comparisons=(), node=()))
    assert first.attrib["classname"] == f"{results.suite}.open_loop"
    assert first.attrib["name"] == "open.loop[rate=32.0] measure"


def test_no_two_cases_share_a_name(results: Results) -> None:
    """A CI system keys its history by class and name."""
    names = [(case.attrib["classname"], case.attrib["name"]) for case in _cases(results)]
    assert len(set(names)) + 2 == len(names)  # three limits on one metric of one point share theirs


@pytest.mark.parametrize(
    ("status", "tag"), [("ok", None), ("failed", "error"), ("missing", "failure"), ("skipped", "skipped")]
)
def test_mark_of_a_point(results: Results, status: str, tag: str | None) -> None:
    """Failure, error and skipped are three things."""
    marks = {
        p.status: [mark.tag for mark in case if mark.tag != "system-out"]
        for p, case in zip(results.points, _cases(results), strict=False)
    }
    assert marks[status] == ([] if tag is None else [tag])  # type: ignore[index]


def test_mark_of_a_scaling_row(results: Results) -> None:
    """Only a pass has no mark, and the type names the verdict."""
    rows = _cases(results)[5:11]
    expected = [None, ("failure", "fail"), ("error", "error"), ("failure", "missing"), ("skipped", None)]
    assert [*expected, ("skipped", None)] == [
        None if case[0].tag == "system-out" else (case[0].tag, case[0].get("type")) for case in rows
    ]


def test_only_what_is_decided_well_or_undecided_reads_as_green(
    all_skipped: Results, verdicts: tuple[Verdict, ...]
) -> None:
    """Also when no point and no row says what went wrong."""
    green = set()
    for verdict in verdicts:
        suite = _suite(dataclasses.replace(all_skipped, verdict=verdict))
        if suite.attrib["failures"] == suite.attrib["errors"] == "0":
            green.add(verdict)
    assert {"pass", "no_expectation", "inconclusive"} == green


def test_hostile_text_stays_text(hostile: Results) -> None:
    """Markup is escaped; what XML has no place for becomes a question mark."""
    suite = _suite(hostile)
    message = suite[1][0].attrib["message"]
    assert message.startswith("a|b <script>&amp; ]]> \"q\" 'q'\n\r\t??[31mred?[0m")
    assert message.endswith("ünï 😀?")
    assert len(suite.findall("testcase")) == 6
