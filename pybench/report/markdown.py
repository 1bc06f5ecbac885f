"""A summary for places that render Markdown, such as a CI job's page."""

from __future__ import annotations

import re

from pybench.report.printable import printable
from pybench.report.provenance import changes, sentence
from pybench.report.rows import Table, tables
from pybench.report.run_view import RunView

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def render(view: RunView) -> str:
    """Headline with the verdict, then every table."""
    results = view.results
    profile = f", profile {results.profile}" if results.profile else ""
    head = [
        f"## {escape(results.suite)}: {results.verdict.replace('_', ' ')}",
        "",
        escape(results.description),
        "",
        f"{escape(results.reason)} (machine {escape(results.machine)}{escape(profile)}, run {escape(results.run_id)})",
        "",
        *((escape(changed), "") if (changed := changes(results.options)) else ()),
        escape(sentence(results.provenance)),
    ]
    return "\n".join([*head, *(line for table in tables(results) for line in _table(table))]) + "\n"


def escape(text: str) -> str:
    """One line of plain text, whatever it holds."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _table(table: Table) -> list[str]:
    return [
        "",
        f"### {escape(table.title)}",
        "",
        f"| {' | '.join(map(escape, table.heads))} |",
        f"|{'---|' * len(table.heads)}",
        *(f"| {' | '.join(map(escape, row))} |" for row in table.rows),
    ]
