"""The report people read first."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pybench.model.results import Results
from pybench.report.rows import Table, tables

_COLOURS = {
    "pass": "green",
    "ok": "green",
    "fail": "red",
    "failed": "red",
    "error": "red",
    "missing": "yellow",
    "skipped": "yellow",
    "inconclusive": "yellow",
}


def render(results: Results, *, width: int = 120, color: bool = False) -> str:
    """Draw every table and, last, the verdict. Colour repeats what the words say."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=color, no_color=not color, highlight=False)
    profile = f", profile {results.profile}" if results.profile else ""
    console.print(Text(clean(f"{results.suite} on {results.machine}{profile}: {results.description}")))
    for table in tables(results):
        console.print()
        console.print(_draw(table))
    console.print()
    console.print(Text.assemble("verdict: ", _word(results.verdict), clean(f" - {results.reason}")))
    return stream.getvalue()


def clean(text: str) -> str:
    """Text without control characters: a worker's message must not steer the reader's terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def _draw(table: Table) -> RichTable:
    drawn = RichTable(title=table.title, title_justify="left", show_edge=False, pad_edge=False)
    for head in table.heads:
        drawn.add_column(head, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_word(cell) for cell in row))
    return drawn


def _word(cell: str) -> Text:
    return Text(clean(cell), style=_COLOURS.get(cell, ""))
