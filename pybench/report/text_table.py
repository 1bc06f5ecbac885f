"""Tables as text: aligned columns where they fit, else a block of labelled cells for each row."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group
from rich.padding import Padding
from rich.segment import Segment
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
_AXES = re.compile(r"(?<=,)(?=\S)")
_GAP = 2
_LEFT = {"point", "verdict", "reason", "metric", "flags", "status", "notes", "source"}
_SHORTEST_NAME = 16
"""A first column is wrapped down to this many characters before the table is stacked."""


def console(stream: io.StringIO, width: int, *, color: bool) -> Console:
    """A console that reads nothing from the environment: a dumb TERM would otherwise make the width 80."""
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
    return without_trailing_spaces(stream.getvalue())


def fits(table: Table, width: int) -> bool:
    """Whether the table's columns stand side by side without wrapping."""
    return sum(_widths(table)) + _GAP * (len(table.heads) - 1) <= width


def draw(table: Table, width: int) -> Group:
    """The table with its title, within ``width``."""
    widths = _widths(table)
    others = sum(widths[1:]) + _GAP * (len(widths) - 1)
    title = [Text(printable(table.title), style="bold")] if table.title else []
    if min(widths[0], _SHORTEST_NAME) + others <= width:
        return Group(*title, _Columns(table, (min(widths[0], width - others), *widths[1:])))
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
    """A cell; colour repeats the meaning of a verdict's word."""
    return Text(printable(cell), style=COLOURS.get(cell, ""))


def _widths(table: Table) -> list[int]:
    lines = (table.heads, *table.rows)
    return [max([cell_len(printable(cell)) for cell in column]) for column in zip(*lines, strict=True)]


@dataclass(frozen=True)
class _Columns:
    """The table's rows as aligned cells; the first column takes ``widths[0]``, longer names go on below.

    Segments, not rich's own table: that one measures and wraps every cell, half a second for a thousand rows.
    """

    table: Table
    widths: tuple[int, ...]

    def __rich_console__(self, console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        yield from self._row([Text(printable(head), style="bold") for head in self.table.heads], console)
        yield Segment("─" * (sum(self.widths) + _GAP * (len(self.widths) - 1)) + "\n")
        for row in self.table.rows:
            yield from self._row([word(cell) for cell in row], console)

    def _row(self, cells: Sequence[Text], console: Console) -> Iterator[Segment]:
        """The cells, and below them what is left of a long name."""
        name, *others = cells
        first, *more = _wrapped(name, self.widths[0], console)
        yield from self._line((first, *others), console)
        for rest in more:
            yield from self._line((rest,), console)

    def _line(self, cells: Sequence[Text], console: Console) -> Iterator[Segment]:
        for place, (cell, width, left) in enumerate(zip(cells, self.widths, self._left, strict=False)):
            room = " " * (width - cell_len(cell.plain))
            yield Segment(" " * _GAP * (place > 0) + room * (not left))
            yield Segment(cell.plain, console.get_style(cell.style))
            yield Segment(room * left)
        yield Segment.line()

    @cached_property
    def _left(self) -> tuple[bool, ...]:
        """Which columns begin at their left edge."""
        return tuple(
            place == 0 or head in _LEFT or not _numeric([row[place] for row in self.table.rows])
            for place, head in enumerate(self.table.heads)
        )


def _wrapped(name: Text, width: int, console: Console) -> list[Text]:
    """Lines of a name of at most ``width``; the axes of a point's id stay whole where they fit."""
    lines = [""]
    for axis in _AXES.split(name.plain) if cell_len(name.plain) > width else [name.plain]:
        if cell_len(lines[-1] + axis) <= width or lines == [""]:
            lines[-1] += axis
        else:
            lines.append(f"  {axis}")
    return [part for line in lines for part in Text(line, style=name.style).wrap(console, width)]


def _numeric(cells: Sequence[str]) -> bool:
    return all(cell in {"", "-"} or any(char.isdigit() for char in cell) for cell in cells)


def _block(table: Table, row: Sequence[str]) -> Group:
    """The row's name, then its other cells, each behind its head; what is empty is left out."""
    shown = [(head, cell) for head, cell in zip(table.heads[1:], row[1:], strict=True) if cell not in {"", "-"}]
    cells = Text(", ").join(Text.assemble((f"{printable(head)} ", "dim"), word(cell)) for head, cell in shown)
    return Group(Text(printable(row[0]), overflow="fold"), Padding(cells, (0, 0, 0, 4)))
