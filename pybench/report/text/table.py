"""Tables as text in one of three forms: columns; fewer columns with text below each row; a block for each row."""

from __future__ import annotations

import io
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from pybench.report.table import NOTHING, Table, printable

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
_JOINED = "\ue000"  # for private use, so in no text: a space that no line ends at
_GAP = 2
_INDENT = "    "
_DEEPER = "  "
"""In front of further lines of a name."""
_BREAKS = (re.compile(r"(?<=[,\[])(?=\S)|(?<=, )"), re.compile(r"(?<=[,\[])(?=\S)|(?<= )"))
"""Where a name goes on below: between axes, else between words."""
_LEAST_NAME = 16
"""Characters; a narrower column of names is harder to read than blocks."""
_NUMBER = re.compile(r"(?:about |at least )?[^A-Za-z]*\d")
_WORDS = {"point", "metric", "flags", "verdict", "status", "state"}
_TEXT = {"reason", "notes", "source"}


class Paper(Console):
    """A console that reads nothing from the environment: a dumb TERM would otherwise make the width 80."""

    def __init__(self, width: int, *, color: bool = False) -> None:
        self._stream = io.StringIO()
        super().__init__(
            file=self._stream,
            width=width,
            height=25,
            force_terminal=color,
            no_color=not color,
            color_system="standard" if color else None,
            highlight=False,
        )

    def table(self, table: Table) -> None:
        """A table behind an empty line; nothing without rows."""
        if table.rows:
            self.print()
            self.print(draw(table, self.width))

    def text(self) -> str:
        """The printed text with its colours; spaces at the ends of lines are removed."""
        return _TRAILING.sub(lambda match: match.group().replace(" ", ""), self._stream.getvalue())


@dataclass(frozen=True)
class _Layout:
    """Columns and their widths, or blocks without ``widths``; what all rows share; the text below each row."""

    table: Table
    widths: tuple[int, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()


def fits(table: Table, width: int) -> bool:
    """Whether the table fits as columns, with every name on one line."""
    return sum(_widths(table)) + _GAP * (len(table.heads) - 1) <= width


def draw(table: Table, width: int) -> Group:
    """The table with its title, within ``width``."""
    parts: list[Text | Padding | Group] = [Text(printable(table.title), style="bold")] if table.title else []
    layout = _layout(table, width)
    if layout.shared:
        parts.append(Padding(_behind_heads(layout.shared, width - 2, "all:"), (0, 0, 0, 2)))
    if layout.widths:
        parts += _columns(layout)
    else:
        for name, *row in layout.table.rows:  # a block has the row's name, then its other cells that are not empty
            cells = [cell for cell in zip(layout.table.heads[1:], row, strict=True) if cell[1] not in NOTHING]
            drawn = _behind_heads(cells, width - len(_INDENT))
            parts += [Text(printable(name), overflow="fold"), Padding(drawn, (0, 0, 0, len(_INDENT)))]
    return Group(*parts)


def _layout(table: Table, width: int) -> _Layout:
    """The first form that fits. Columns that all rows share and then intervals go before a table becomes blocks."""
    if fits(table, width):
        return _Layout(table, _widths(table))
    used = table.without_empty_columns()
    for among in (_TEXT, used.heads[1:]):
        above, rest = _split_shared(used, among)
        words = [place for place, head in enumerate(rest.heads) if head in _TEXT]
        texts = tuple(tuple(row[place] for place in words if row[place] not in NOTHING) for row in rest.rows)
        plain = rest.without(_TEXT)
        if fits(plain, width):
            return _Layout(plain, _widths(plain), above, texts)
    for narrower in (plain, plain.without_notes()):
        name, *widths = _widths(narrower)
        room = min(name, width - sum(widths) - _GAP * len(widths))
        names = [_folded(row[0], room) for row in narrower.rows]
        if room == name or (room >= _LEAST_NAME and all(names)):
            longest = max(cell_len(line) for lines in ([narrower.heads[0]], *names) for line in lines)
            return _Layout(narrower, (longest, *widths), above, texts)
    return _Layout(rest, shared=above)


def _split_shared(table: Table, among: Container[str]) -> tuple[tuple[tuple[str, str], ...], Table]:
    """Head and cell of the columns of ``among`` in which several rows agree, and the table without these columns."""
    first, *others = table.rows
    shared = {
        head: first[place]
        for place, head in enumerate(table.heads)
        if others and head in among and all(row[place] == first[place] for row in others)
    }
    return tuple(shared.items()), table.without(shared)


def _widths(table: Table) -> tuple[int, ...]:
    return tuple(
        max(cell_len(printable(cell)) for cell in column) for column in zip(table.heads, *table.rows, strict=True)
    )


def _folded(name: str, room: int) -> list[str]:
    """The lines of a name; none where an axis or a word is longer than ``room``."""
    for breaks in _BREAKS:
        lines = [""]
        for piece in breaks.split(printable(name)):
            if cell_len((lines[-1] + piece).rstrip()) <= room:
                lines[-1] += piece
            else:
                lines.append(f"{_DEEPER}{piece}")
        if all(cell_len(line.rstrip()) <= room for line in lines):
            return [line.rstrip() for line in lines]
    return []


def _columns(layout: _Layout) -> Iterator[Text | Padding]:
    """Not rich's own table, which measures and wraps every cell: half a second for a thousand rows."""
    table = layout.table
    # The first column begins at its left edge, and those whose cells are no numbers.
    known = [[row[place] for row in table.rows if row[place] not in NOTHING] for place in range(len(table.heads))]
    is_words = [
        place == 0 or table.heads[place] in _WORDS or not all(map(_NUMBER.match, cells))
        for place, cells in enumerate(known)
    ]

    def line(cells: Sequence[str], style: str = "") -> Text:
        drawn = Text(no_wrap=True)
        for place, (cell, cell_width) in enumerate(zip(cells, layout.widths, strict=True)):
            text, room = printable(cell), " " * (cell_width - cell_len(printable(cell)))
            drawn.append(" " * _GAP * (place > 0) + room * (not is_words[place]))
            drawn.append(text, style or COLOURS.get(cell, ""))
            drawn.append(room * is_words[place])
        return drawn

    yield line(table.heads, "bold")
    yield Text("─" * (sum(layout.widths) + _GAP * (len(layout.widths) - 1)))
    for row, texts in zip(table.rows, layout.texts or [()] * len(table.rows), strict=True):
        name, *further = _folded(row[0], layout.widths[0])
        yield line((name, *row[1:]))
        yield from map(Text, further)
        for text in texts:
            yield Padding(Text(printable(text)), (0, 0, 0, len(_INDENT)))


def hanging(out: Console, text: str, style: str = "") -> None:
    """A paragraph whose further lines stand deeper than its first."""
    body = text.lstrip(" ")
    indent = len(text) - len(body)
    room = max(out.width - indent - 2, 8)
    foldable = " ".join(piece for word in printable(body).split(" ") for piece in _pieces(word, room))
    for number, line in enumerate(Text(foldable.replace(" %", f"{_JOINED}%")).wrap(out, room)):
        line.plain = line.plain.rstrip().replace(_JOINED, " ")
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


def _behind_heads(cells: Sequence[tuple[str, str]], room: int, start: str = "") -> Text:
    """Each cell behind its head; a line ends between cells where each cell fits on a line."""
    line, drawn = cell_len(start), Text(start)
    for number, (head, cell) in enumerate(cells):
        comma = "," if number + 1 < len(cells) else ""
        piece = Text.assemble((f"{printable(head)} ", "dim"), (printable(cell), COLOURS.get(cell, "")), comma)
        length = cell_len(piece.plain)
        if drawn.plain:
            is_full = line + 1 + length > room >= length
            drawn.append("\n" if is_full else " ")
            line = 0 if is_full else line + 1
        drawn.append_text(piece)
        line = (line + length) % room if length > room else line + length
    return drawn
