"""Tables as text: aligned columns where they fit, else in parts below each other, else a block for each row."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

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
# Where a name may be broken: behind a bracket, between axes of an id, and between parts of a label.
_AXES = re.compile(r"(?<=[,\[])(?=\S)|(?<=, )")
_GAP = 2
_LEFT = {"point", "verdict", "reason", "metric", "flags", "status", "notes", "source"}
_TEXT = {"reason", "notes", "source"}
_INDENT = "    "
_SHORTEST_NAME = 16
"""A first column is wrapped down to this many characters, or its longest word, before the table is stacked."""
_LONGEST_WORD = 32
"""A longer word of a first column is cut."""
_MOST_PARTS = 3
"""A table of more parts than these is read more easily row by row."""


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
    first, *others = _widths(table)
    return first <= _room(others, width)


def draw(table: Table, width: int) -> Group:
    """The table with its title, within ``width``.

    Where it is wider, its text stands below each row, and its other columns in up to three parts below each other.
    """
    title = [Text(printable(table.title), style="bold")] if table.title else []
    first, *others = _widths(table)
    if min(first, _shortest_name(table)) <= _room(others, width):
        return Group(*title, _columns(table, width))
    texts, plain = _split_text(table.without_empty_columns())
    found = _parts(plain, width)
    if not found:
        return Group(*title, *(_block(table, row) for row in table.rows))
    above, *below = found
    return Group(*title, replace(above, texts=texts), *(line for part in below for line in (Text(), part)))


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


def _widths(table: Table) -> list[int]:
    lines = (table.heads, *table.rows)
    return [max([cell_len(printable(cell)) for cell in column]) for column in zip(*lines, strict=True)]


def _shortest_name(table: Table) -> int:
    words = (piece for row in table.rows for piece in _AXES.sub(" ", printable(row[0])).split(" "))
    return max(_SHORTEST_NAME, min(max(map(cell_len, words), default=0), _LONGEST_WORD))


def _split_text(table: Table) -> tuple[tuple[str, ...], Table]:
    """What each row has in words, and the table without it."""
    words = [place for place, head in enumerate(table.heads) if head in _TEXT]
    texts = tuple("; ".join(row[place] for place in words if row[place] not in {"-", ""}) for row in table.rows)
    return texts, table.of_columns([place for place in range(len(table.heads)) if place not in words])


def _parts(table: Table, width: int) -> tuple[_Columns, ...]:
    """The columns in turn beside those that name a row, as few parts as can be; none where that is too many.

    The first part has every row, a further one those that have a value in it.
    """
    widths = _widths(table)
    num_names = _num_names(table)
    room = _room(widths[1:num_names], width)
    needed = [_GAP + one for one in widths[num_names:]]
    tried = (_filled(needed, room - name) for name in (widths[0], min(widths[0], _shortest_name(table))))
    places = min((one for one in tried if one), key=len, default=[])
    if len(places) > _MOST_PARTS:
        return ()
    parts = [table.of_columns((*range(num_names), *(num_names + one for one in part))) for part in places]
    further = (replace(part, rows=tuple(row for row in part.rows if _has_value(row[num_names:]))) for part in parts[1:])
    return tuple(_columns(part, width) for part in (*parts[:1], *further))


def _has_value(cells: Sequence[str]) -> bool:
    return any(cell not in {"-", ""} for cell in cells)


def _filled(widths: Sequence[int], room: int) -> list[list[int]]:
    """Places in order, as many together as there is room for; nothing where one alone is too wide."""
    parts: list[list[int]] = [[]]
    for place, needed in enumerate(widths):
        if needed > room:
            return []
        if sum(widths[other] for other in parts[-1]) + needed > room:
            parts.append([])
        parts[-1].append(place)
    return parts


def _num_names(table: Table) -> int:
    """How many of the first columns tell the rows apart; the first alone where none do."""
    for number in range(1, len(table.heads)):
        if len({row[:number] for row in table.rows}) == len(table.rows):
            return number
    return 1


def _columns(table: Table, width: int) -> _Columns:
    """All columns beside each other; the first takes what the others leave."""
    first, *others = _widths(table)
    return _Columns(table, (min(first, _room(others, width)), *others))


def _room(others: Sequence[int], width: int) -> int:
    """What columns of these widths leave for the first."""
    return width - sum(_GAP + one for one in others)


@dataclass(frozen=True)
class _Columns:
    """The table's rows as aligned cells; the first column takes ``widths[0]``, longer names go on below.

    ``texts``, one a row where there are any, stand below their rows.

    Segments, not rich's own table: that one measures and wraps every cell, half a second for a thousand rows.
    """

    table: Table
    widths: tuple[int, ...]
    texts: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        yield from self._row([Text(printable(head), style="bold") for head in self.table.heads], console)
        yield Segment("─" * (sum(self.widths) + _GAP * (len(self.widths) - 1)) + "\n")
        for row, text in zip_longest(self.table.rows, self.texts, fillvalue=""):
            yield from self._row([word(cell) for cell in row], console)
            for line in Text(printable(text)).wrap(console, console.width - len(_INDENT)) if text else ():
                yield Segment(f"{_INDENT}{line.plain.rstrip()}\n")

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
        if cell_len((lines[-1] + axis).rstrip()) <= width or lines == [""]:
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
