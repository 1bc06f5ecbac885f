"""Tables as text: aligned columns where they fit, else a block of labelled cells for each row."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from pybench.report.printable import printable
from pybench.report.rows import Table

COLOURS = {
    "pass": "green",
    "ok": "green",
    "fail": "red",
    "failed": "red",
    "error": "red",
    "missing": "yellow",
    "skipped": "yellow",
    "inconclusive": "yellow",
}
_TRAILING = re.compile(r"(?: |\x1b\[[0-9;]*m)+$", re.MULTILINE)
_GAP = 2
_LEFT = {"point", "verdict", "reason", "metric", "flags", "status", "notes"}
_SHORTEST_NAME = 16
"""A first column is wrapped down to this many characters before the table is stacked."""


def console(stream: io.StringIO, width: int, *, color: bool) -> Console:
    """A console that asks the environment nothing: a dumb TERM would otherwise make the width 80."""
    return Console(
        file=stream,
        width=width,
        height=25,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
    )


def draw_tables(drawn: Sequence[Table], *, width: int, color: bool = False) -> str:
    """Tables alone, each behind an empty line."""
    stream = io.StringIO()
    out = console(stream, width, color=color)
    for table in drawn:
        out.print()
        out.print(draw(table, width))
    return stream.getvalue()


def fits(table: Table, width: int) -> bool:
    """Whether the table's columns stand side by side without wrapping."""
    return sum(_widths(table)) + _GAP * (len(table.heads) - 1) <= width


def draw(table: Table, width: int) -> Group:
    """The table with its title, within ``width``."""
    widths = _widths(table)
    others = sum(widths[1:]) + _GAP * (len(widths) - 1)
    title = [Text(printable(table.title), style="bold")] if table.title else []
    if min(widths[0], _SHORTEST_NAME) + others <= width:
        return Group(*title, _columns(table, min(widths[0], width - others)))
    return Group(*title, *(_block(table, row) for row in table.rows))


def hanging(out: Console, text: str, style: str = "") -> None:
    """A paragraph whose further lines stand deeper than its first."""
    body = text.lstrip(" ")
    indent = len(text) - len(body)
    lines = Text(printable(body)).wrap(out, max(out.width - indent - 2, 8))
    for number, line in enumerate(lines):
        line.rstrip()
        line.style = style if number == 0 and style else ""
        out.print(Padding(line, (0, 0, 0, indent + (2 if number else 0))))


def without_trailing_spaces(text: str) -> str:
    """Text as drawn, without the spaces that fill its lines; colours stay."""
    return _TRAILING.sub(lambda found: found.group().replace(" ", ""), text)


def word(cell: str) -> Text:
    """A cell; colour repeats what a verdict's word says."""
    return Text(printable(cell), style=COLOURS.get(cell, ""))


def _widths(table: Table) -> list[int]:
    lines = (table.heads, *table.rows)
    return [max(cell_len(printable(line[column])) for line in lines) for column in range(len(table.heads))]


def _columns(table: Table, first: int) -> RichTable:
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column, head in enumerate(table.heads):
        cells = [row[column] for row in table.rows]
        drawn.add_column(
            printable(head),
            justify="left" if column == 0 or head in _LEFT or not _numeric(cells) else "right",
            overflow="fold",
            no_wrap=column > 0,
            width=first if column == 0 else None,
        )
    for row in table.rows:
        drawn.add_row(*map(word, row))
    return drawn


def _numeric(cells: Sequence[str]) -> bool:
    return all(cell in {"", "-"} or any(char.isdigit() for char in cell) for cell in cells)


def _block(table: Table, row: Sequence[str]) -> Group:
    """The row's name, then its other cells, each behind its head; what is empty is left out."""
    shown = [(head, cell) for head, cell in zip(table.heads[1:], row[1:], strict=True) if cell not in {"", "-"}]
    cells = Text(", ").join(Text.assemble((f"{printable(head)} ", "dim"), word(cell)) for head, cell in shown)
    return Group(Text(printable(row[0]), overflow="fold"), Padding(cells, (0, 0, 0, 4)))
