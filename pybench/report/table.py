"""The table that every report draws: terminal, Markdown, page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOTHING = frozenset({"-", ""})
"""Cells without a value."""


@dataclass(frozen=True)
class Table:
    """Title, column heads, cells."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def without_empty_columns(self) -> Table:
        """The table without columns, other than the first, that have no value in any row."""
        return self.of_columns(
            [i for i in range(len(self.heads)) if i == 0 or any(row[i] not in NOTHING for row in self.rows)]
        )

    def of_columns(self, places: Sequence[int]) -> Table:
        """The table with these columns alone."""
        cells = (tuple(row[place] for place in places) for row in self.rows)
        return Table(self.title, tuple(self.heads[place] for place in places), tuple(cells))
