"""The table that every report draws: terminal, text, Markdown, page; and text from outside made safe to show."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

NOTHING = frozenset({"-", ""})
"""Cells without a value."""


class Cell(str):
    """A cell's text, with the number ``order`` that sorts its column on a page; ``None`` sorts last.

    ``note``, such as an interval, is the last part of the text. A page prints it small, a narrow table leaves it out.
    """

    __slots__ = ("note", "order")
    order: float | None
    note: str

    def __new__(cls, text: str, order: float | None = None, note: str = "") -> Self:
        """The text is ``text`` and ``note`` together."""
        cell = super().__new__(cls, f"{text} {note}" if note else text)
        cell.order, cell.note = order, note
        return cell

    @property
    def brief(self) -> str:
        """The text without the note."""
        return self.removesuffix(self.note).rstrip() if self.note else str(self)


@dataclass(frozen=True)
class Table:
    """Title, column heads, cells. A page shows a cell of the column ``verdict`` in its colour."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def without_empty_columns(self) -> Table:
        """The table without columns, other than the first, that have no value in any row."""
        return self.of_columns(
            [i for i in range(len(self.heads)) if i == 0 or any(row[i] not in NOTHING for row in self.rows)]
        )

    def without(self, heads: Iterable[str]) -> Table:
        """The table without the columns of these heads."""
        left_out = set(heads)
        return self.of_columns([place for place, head in enumerate(self.heads) if head not in left_out])

    def of_columns(self, places: Sequence[int]) -> Table:
        """The table with these columns alone."""
        cells = (tuple(row[place] for place in places) for row in self.rows)
        return replace(self, heads=tuple(self.heads[place] for place in places), rows=tuple(cells))

    def without_notes(self) -> Table:
        """The table without the notes of its cells."""
        rows = (tuple(cell.brief if isinstance(cell, Cell) else cell for cell in row) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def with_one_metric(self, title: str) -> Table:
        """With the metric in ``title`` instead of a column where all rows have the same one."""
        place = self.heads.index("metric")
        metrics = {row[place] for row in self.rows}
        return replace(self.without(("metric",)), title=title.format(*metrics)) if len(metrics) == 1 else self

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The verdict of each row; empty without the column."""
        return tuple(row[self.heads.index("verdict")] for row in self.rows) if "verdict" in self.heads else ()


def printable(text: str) -> str:
    """One line of ``text`` without control characters: a worker's message must not steer the reader's terminal."""
    if text.isprintable():
        return str(text)
    return "".join(char if char.isprintable() else " " for char in text)


def wrapped(text: str, width: int, indent: str = "", after: str = "") -> list[str]:
    """Lines of ``text``, the first behind ``indent``, the others behind ``after``; paths and commands stay whole."""
    whole = textwrap.TextWrapper(width, indent, after, break_long_words=False, break_on_hyphens=False)
    return whole.wrap(printable(text)) or [""]


def cut(text: str, room: int) -> str:
    """``text``, or as much of it as there is room for."""
    return text if len(text) <= room else f"{text[: max(room - 3, 0)]}..."


def ends(text: str, room: int) -> str:
    """``text``, shortened in the middle to ``room`` characters: a message ends with its next step."""
    half = (room - 5) // 2
    return text if len(text) <= room else f"{text[:half]} ... {text[-half:]}"
