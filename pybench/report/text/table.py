"""Tables as text: aligned columns, what all rows share above them, text below its row."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from pybench.report.table import NOTHING, Table
from pybench.report.text.layout import AXES, GAP, Part, is_words, layout
from pybench.report.text.printable import printable

COLOURS = {
    "pass": "green",
    "ok": "green",
    "fail": "red",
    "failed": "red",
    "error": "red",
    "missing": "yellow",
    "skipped": "yellow",
    "does_not_fit": "yellow",
    "inconclusive": "yellow",
}
_TRAILING = re.compile(r"(?: |\x1b\[[0-9;]*m)+$", re.MULTILINE)
_WORDS = re.compile(r"\S+\s*")
_INDENT = "    "
_DEEPER = "  "
"""In front of further lines of a cell that has axes."""


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


def draw(table: Table, width: int) -> Group:
    """The table with its title, within ``width``, as :func:`layout` has it."""
    title = [Text(printable(table.title), style="bold")] if table.title else []
    found = layout(table, width)
    shared = [Padding(Text.assemble("all: ", _behind_heads(found.shared)), (0, 0, 0, 2))] if found.shared else []
    if not found.parts:
        return Group(*title, *shared, *(_block(found.table, row) for row in found.table.rows))
    above, *below = map(_Columns, found.parts)
    return Group(*title, *shared, above, *(line for part in below for line in (Text(), part)))


def hanging(out: Console, text: str, style: str = "") -> None:
    """A paragraph whose further lines stand deeper than its first."""
    body = text.lstrip(" ")
    indent = len(text) - len(body)
    room = max(out.width - indent - 2, 8)
    foldable = " ".join(piece for word in printable(body).split(" ") for piece in _pieces(word, room))
    lines = Text(foldable).wrap(out, room)
    for number, line in enumerate(lines):
        line.rstrip()
        line.style = style if number == 0 and style else ""
        out.print(Padding(line, (0, 0, 0, indent + (2 if number else 0))))


def _pieces(word: str, room: int) -> list[str]:
    """An id with more axes than a line holds, in parts that end with a comma; no two of them fit one line."""
    pieces = [""]
    for part in word.split(",") if cell_len(word) > room else [word]:
        joined = f"{pieces[-1]},{part}" if pieces[-1] else part
        if cell_len(joined) + 1 > room and pieces[-1]:
            pieces[-1] += ","
            pieces.append(part)
        else:
            pieces[-1] = joined
    return pieces


def without_trailing_spaces(text: str) -> str:
    """Text as drawn, without the spaces that fill its lines; colours stay."""
    return _TRAILING.sub(lambda found: found.group().replace(" ", ""), text)


def word(cell: str) -> Text:
    """A cell; colour repeats the meaning of a verdict's word."""
    return Text(printable(cell), style=COLOURS.get(cell, ""))


@dataclass(frozen=True)
class _Columns:
    """A part's rows as aligned cells; what is longer than its column goes on below.

    Segments, not rich's own table: that one measures and wraps every cell, half a second for a thousand rows.
    """

    part: Part

    def __rich_console__(self, console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        table = self.part.table
        heads = self._cells([Text(printable(head), style="bold") for head in table.heads], console)
        deepest = max(map(len, heads))
        heads = [[*[Text()] * (deepest - len(lines)), *lines] for lines in heads]
        rows = [self._cells([word(cell) for cell in row], console) for row in table.rows]
        columns = zip(heads, *rows, strict=True)
        widths = [max(cell_len(line.plain) for cell in column for line in cell) for column in columns]
        yield from self._lines(heads, widths, console)
        yield Segment("─" * (sum(widths) + GAP * (len(widths) - 1)) + "\n")
        for row, texts in zip_longest(rows, self.part.texts, fillvalue=()):
            yield from self._lines(row, widths, console)
            for text in texts:
                for line in Text(printable(text)).wrap(console, console.width - len(_INDENT)):
                    yield Segment(f"{_INDENT}{line.plain.rstrip()}\n")

    def _cells(self, cells: Sequence[Text], console: Console) -> list[list[Text]]:
        """The lines of each cell."""
        return [_wrapped(cell, width, console) for cell, width in zip(cells, self.part.widths, strict=True)]

    def _lines(self, cells: Sequence[Sequence[Text]], widths: Sequence[int], console: Console) -> Iterator[Segment]:
        for line in zip_longest(*cells, fillvalue=Text()):
            for place, (cell, width, left) in enumerate(zip(line, widths, self._left, strict=True)):
                room = " " * (width - cell_len(cell.plain))
                yield Segment(" " * GAP * (place > 0) + room * (not left))
                yield Segment(cell.plain, console.get_style(cell.style))
                yield Segment(room * left)
            yield Segment.line()

    @cached_property
    def _left(self) -> tuple[bool, ...]:
        """Which columns begin at their left edge."""
        return tuple(is_words(self.part.table, place) for place in range(len(self.part.widths)))


def _wrapped(cell: Text, width: int, console: Console) -> list[Text]:
    """Lines of at most ``width``; the axes of a point's id stay whole where they fit."""
    if cell_len(cell.plain) <= width:
        return [cell]
    axes, lines = AXES.split(cell.plain), [""]
    deeper = _DEEPER if len(axes) > 1 else ""
    for piece in (piece for axis in axes for piece in _narrow(axis, width - len(deeper))):
        if cell_len((lines[-1] + piece).rstrip()) <= width or lines == [""]:
            lines[-1] += piece
        else:
            lines.append(f"{deeper}{piece}")
    wrapped = (part for line in lines for part in Text(line, style=cell.style).wrap(console, width))
    return [Text(part.plain.rstrip(), style=cell.style) for part in wrapped]


def _narrow(axis: str, room: int) -> list[str]:
    """Its words, each with the space behind it, where it has no room as a whole."""
    return [axis] if cell_len(axis.rstrip()) <= room else _WORDS.findall(axis)


def _block(table: Table, row: Sequence[str]) -> Group:
    """The row's name, then its other cells; what is empty is left out."""
    shown = [(head, cell) for head, cell in zip(table.heads[1:], row[1:], strict=True) if cell not in NOTHING]
    return Group(Text(printable(row[0]), overflow="fold"), Padding(_behind_heads(shown), (0, 0, 0, len(_INDENT))))


def _behind_heads(cells: Iterable[tuple[str, str]]) -> Text:
    """Each cell behind its head."""
    return Text(", ").join(Text.assemble((f"{printable(head)} ", "dim"), word(cell)) for head, cell in cells)
