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


def _suite(results: Results) -> ET.Element:
    suite = ET.fromstring(render(RunView(results=results))).find("testsuite")
    assert suite is not None
    return suite


def test_counts_are_those_of_the_cases(results: Results) -> None:
    """5 points, 6 scaling rows, 3 limits, 3 orders, 2 checks and a fault of the node, the verdict; by hand."""
    suite = _suite(results)
    counts = {name: int(suite.attrib[name]) for name in ("tests", *_TAGS)}
    assert counts == {"tests": 21, "failures": 11, "errors": 2, "skipped": 2}
    assert counts == {"tests": len(suite), **{name: len(suite.findall(f"*/{tag}")) for name, tag in _TAGS.items()}}


def test_no_two_cases_share_a_name(results: Results) -> None:
    """A CI system keys its history by class and name."""
    names = [(case.attrib["classname"], case.attrib["name"]) for case in _suite(results)]
    assert len(set(names)) + 2 == len(names)  # three limits on one metric of one point share theirs


@pytest.mark.parametrize(
    ("status", "tag"), [("ok", None), ("failed", "error"), ("missing", "failure"), ("skipped", "skipped")]
)
def test_mark_of_a_point(results: Results, status: str, tag: str | None) -> None:
    """Failure, error and skipped are three things."""
    marks = {p.status: [mark.tag for mark in case] for p, case in zip(results.points, _suite(results), strict=False)}
    assert marks[status] == ([] if tag is None else [tag])  # type: ignore[index]


def test_mark_of_a_scaling_row(results: Results) -> None:
    """Only a pass has no mark, and the type names the verdict."""
    rows = list(_suite(results))[5:11]
    expected = [None, ("failure", "fail"), ("error", "error"), ("failure", "missing"), ("failure", "inconclusive")]
    assert [*expected, ("skipped", None)] == [
        (case[0].tag, case[0].get("type")) if len(case) else None for case in rows
    ]


def test_only_a_pass_reads_as_green(all_skipped: Results, verdicts: tuple[Verdict, ...]) -> None:
    """Also when no point and no row says what went wrong."""
    green = set()
    for verdict in verdicts:
        suite = _suite(dataclasses.replace(all_skipped, verdict=verdict))
        if suite.attrib["failures"] == suite.attrib["errors"] == "0":
            green.add(verdict)
    assert {"pass", "no_expectation"} == green


def test_hostile_text_stays_text(hostile: Results) -> None:
    """Markup is escaped; what XML has no place for becomes a question mark."""
    suite = _suite(hostile)
    message = suite[0][0].attrib["message"]
    assert message.startswith("a|b <script>&amp; ]]> \"q\" 'q'\n\r\t??[31mred?[0m")
    assert message.endswith("ünï 😀?")
    assert len(suite) == 6
