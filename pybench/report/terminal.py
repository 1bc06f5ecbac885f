"""The report people read first."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pybench.model.results import Results
from pybench.report.printable import printable
from pybench.report.provenance import sentence
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
_PROSE = ("notes", "reason")
"""Columns of free text: they wrap, and are readable from this many characters on."""
_PROSE_WIDTH = 24
_SEPARATOR = 3


def render(results: Results, *, width: int = 120, color: bool = False) -> str:
    """Draw every table and, as the last line, the verdict. Colour repeats what the words say."""
    stream = io.StringIO()
    console = _console(stream, width, color=color)
    profile = f", profile {results.profile}" if results.profile else ""
    console.print(Text(printable(f"{results.suite} on {results.machine}{profile}, run {results.run_id}")))
    console.print(Text(printable(sentence(results.provenance))))
    if results.description:
        console.print(Text(printable(results.description)))
    _print(console, tables(results), width)
    console.print()
    verdict = Text.assemble("verdict: ", _word(results.verdict), printable(f" - {results.reason}"))
    console.print(verdict, soft_wrap=True)
    return stream.getvalue()


def draw_tables(drawn: Sequence[Table], *, width: int = 120, color: bool = False) -> str:
    """Tables alone, each behind an empty line."""
    stream = io.StringIO()
    _print(_console(stream, width, color=color), drawn, width)
    return stream.getvalue()


def _console(stream: io.StringIO, width: int, *, color: bool) -> Console:
    # All that rich would otherwise ask the environment: a height, too, or a dumb TERM makes the width 80.
    return Console(
        file=stream,
        width=width,
        height=25,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
    )


def _print(console: Console, drawn: Sequence[Table], width: int) -> None:
    for table in drawn:
        for number, columns in enumerate(_pieces(table, width)):
            console.print()
            console.print(_draw(table, columns, table.title if number == 0 else f"{table.title}, continued"))


def _pieces(table: Table, width: int) -> list[list[int]]:
    """Columns of each piece of a table. One that is too wide goes on below, rather than break words and numbers."""
    needs = [_need(table, column) for column in range(len(table.heads))]
    everything = list(range(len(needs)))
    others = sum(need + _SEPARATOR for need in needs[1:])
    # The first column names the row in every piece; ids may fold, but less so where that saves no piece.
    if min(needs[0], max(width // 4, _PROSE_WIDTH)) + others <= width:
        return [everything]
    pieces: list[list[int]] = []
    left = 0
    for column in everything[1:]:
        if not pieces or needs[column] + _SEPARATOR > left:
            pieces.append([0])
            left = width - min(needs[0], width // 2)
        pieces[-1].append(column)
        left -= needs[column] + _SEPARATOR
    return pieces


def _need(table: Table, column: int) -> int:
    longest = max(cell_len(printable(text)) for text in (table.heads[column], *(row[column] for row in table.rows)))
    return min(longest, _PROSE_WIDTH) if table.heads[column] in _PROSE else longest


def _draw(table: Table, columns: Sequence[int], title: str) -> RichTable:
    drawn = RichTable(title=Text(printable(title)), title_justify="left", show_edge=False, pad_edge=False)
    for column in columns:
        wraps = column == 0 or table.heads[column] in _PROSE
        drawn.add_column(table.heads[column], overflow="fold", no_wrap=not wraps)
    for row in table.rows:
        drawn.add_row(*(_word(row[column]) for column in columns))
    return drawn


def _word(cell: str) -> Text:
    return Text(printable(cell), style=_COLOURS.get(cell, ""))
