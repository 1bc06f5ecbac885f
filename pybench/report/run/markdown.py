"""A summary for places that render Markdown, such as a CI job's page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pybench.report.run.findings import MOST_SUBJECTS, Finding, by_part, each_step_once, findings
from pybench.report.run.rows import tables
from pybench.report.run.view import RunView, changes, sentence
from pybench.report.table import printable
from pybench.report.text.labels import verdict_words

MOST_BYTES = 900 * 1024
"""GitHub drops a job's whole summary beyond 1 MiB, which several steps may share."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")
_LINK = re.compile(r"://|www\.|@[\w-]+\.", re.IGNORECASE)


def render(view: RunView) -> str:
    """Headline with the verdict, what did not pass, then every table; what is beyond the limit is counted."""
    results = view.results
    profile = f", profile {results.profile}" if results.profile else ""
    head = [
        f"## {escape(results.suite)}: {verdict_words(view.state)}",
        *("", escape(results.description), ""),
        f"{escape(view.reason)} (machine {escape(results.machine)}{escape(profile)}, run {escape(results.run_id)})",
        "",
        *((escape(changed), "") if (changed := changes(results.options)) else ()),
        escape(sentence(results.provenance, detail=False, where="see results.json")),
    ]
    rest = [*_findings(each_step_once(findings(view)))]
    for table in tables(results):
        rest += ["", f"### {escape(table.title)}", ""]
        rest += [f"| {' | '.join(map(escape, table.heads))} |", f"|{'---|' * len(table.heads)}"]
        rest += [f"| {' | '.join(map(escape, row))} |" for row in table.rows]
    return "\n".join([*head, *_within(rest, MOST_BYTES - _size(head))]) + "\n"


def _findings(found: Sequence[Finding]) -> Iterator[str]:
    """By part: the reason, what to do, then subjects and figures, folded where they are many."""
    for part, of_part in by_part(found):
        yield from ("", f"### What did not pass{f': {part}' if part else ''}", "")
        for finding in of_part:
            step = f"<br>**next:** {escape(finding.step)}" if finding.step else ""
            yield f"- **{finding.verdict}** {escape(finding.text())}{step}"
            more = (*(finding.subjects if len(finding.subjects) > MOST_SUBJECTS else ()), *finding.evidence)
            if more:
                lines = "<br>\n  ".join(map(escape, more))
                yield f"  <details><summary>all {len(more)}</summary>{lines}</details>"


def _within(lines: Sequence[str], num_bytes: int) -> list[str]:
    """The first lines that fit, and the number of the others."""
    kept: list[str] = []
    for line in lines:
        num_bytes -= _size([line])
        if num_bytes < 0:
            left = len(lines) - len(kept)
            return [*kept, "", f"{left} more lines are left out; report.html of the run's folder has everything."]
        kept.append(line)
    return kept


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def escape(text: str) -> str:
    """One line of plain text, whatever it holds. Words that a renderer would turn into links become code."""
    words = printable(text).split(" ")
    code = str.maketrans("", "", "`|")
    return " ".join(f"`{w.translate(code)}`" if _LINK.search(w) else _SPECIAL.sub(r"\\\1", w) for w in words)
