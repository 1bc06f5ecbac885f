"""The layout of a table on a screen: its columns, shared values, and text below rows.

A table that is too wide has its heads on two lines; then its text below each row; then what all rows share above it;
then long names on several lines; then its columns in up to three parts; then a block for each row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from pybench.report.table import NOTHING, Table
from pybench.report.text.printable import printable

GAP = 2
AXES = re.compile(r"(?<=[,\[])(?=\S)|(?<=, )")
"""Where a name may be broken: behind a bracket, between axes of an id, and between parts of a label."""
_NUMBER = re.compile(r"(?:about |at least )?[^A-Za-z]*\d")
_VERDICTS = {"verdict", "status", "state"}
_WORDS = {"point", "metric", "flags", *_VERDICTS}
_TEXT = {"reason", "notes", "source"}
_SHORTEST_NAME = 16
"""A column of words is wrapped down to this many characters, or its longest word, before the table is cut."""
_LONGEST_WORD = 32
"""A longer word of a first column is cut."""
_MOST_PARTS = 3
"""A table of more parts than these is read more easily row by row."""


@dataclass(frozen=True)
class Part:
    """Columns beside each other, and their widths. ``texts`` of each row, where there are any, stand below it."""

    table: Table
    widths: tuple[int, ...]
    texts: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Layout:
    """Parts below each other; without any, rows of ``table`` are blocks. ``shared``: heads and cells of all rows."""

    table: Table
    parts: tuple[Part, ...]
    shared: tuple[tuple[str, str], ...] = ()


def fits(table: Table, width: int) -> bool:
    """Whether the table's columns stand side by side without wrapping."""
    return _total(_widths(table, cell_len)) <= width


def layout(table: Table, width: int) -> Layout:
    """The first way of those above that has room in ``width``, for a table that has rows."""
    if found := _beside(table, width):
        return Layout(table, (found,))
    shared, rest = _split_shared(table.without_empty_columns(), among=_TEXT)
    if found := _beside(rest, width):
        return Layout(rest, (found,), shared)
    texts, plain = _split_texts(rest)
    if found := _beside(plain, width):
        return Layout(rest, (replace(found, texts=texts),), shared)
    more, plain = _split_shared(plain, among=plain.heads[1:])
    found = _beside(plain, width) or _wrapped(plain, width)
    parts = (found,) if found else _parts(plain, width)
    if not parts:
        return Layout(rest, (), shared)
    return Layout(rest, (replace(parts[0], texts=texts), *parts[1:]), (*more, *shared))


def is_words(table: Table, place: int) -> bool:
    """Whether a column begins at its left edge: the first one, and those whose cells are no numbers."""
    cells = (row[place] for row in table.rows if row[place] not in NOTHING)
    return place == 0 or table.heads[place] in _WORDS or not all(map(_NUMBER.match, cells))


def _beside(table: Table, width: int) -> Part | None:
    """All columns on lines of their own, heads on two where that is needed; ``None`` without the room."""
    tried = (_widths(table, length) for length in (cell_len, _folded_length))
    return next((Part(table, widths) for widths in tried if _total(widths) <= width), None)


def _wrapped(table: Table, width: int) -> Part | None:
    """The names go on below; where that is not enough, all words do. ``None`` where the columns still have no room."""
    words = [place for place in range(len(table.heads)) if is_words(table, place)]
    for places in ([0], words):
        least = _least_widths(table, places)
        if _total(least) <= width:
            return Part(table, _shrunk(_widths(table, _folded_length), least, width))
    return None


def _shrunk(widths: Sequence[int], least: Sequence[int], width: int) -> tuple[int, ...]:
    """The widest of those that may shrink first, a character at a time."""
    found = list(widths)
    while _total(found) > width:
        place = max((place for place, one in enumerate(found) if one > least[place]), key=found.__getitem__)
        found[place] -= 1
    return tuple(found)


def _least_widths(table: Table, places: Sequence[int]) -> tuple[int, ...]:
    """Widths with the columns at ``places`` as narrow as may be."""
    widths = _widths(table, _folded_length)
    return tuple(min(one, _shortest(table, place)) if place in places else one for place, one in enumerate(widths))


def _shortest(table: Table, place: int) -> int:
    """Of a column of words; a first column's may be cut."""
    words = (piece for row in table.rows for piece in AXES.sub(" ", printable(row[place])).split(" "))
    longest = max(map(cell_len, words), default=0)
    return max(_SHORTEST_NAME, longest if place else min(longest, _LONGEST_WORD), _folded_length(table.heads[place]))


def _widths(table: Table, head_length: Callable[[str], int]) -> tuple[int, ...]:
    cells = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.heads)
    return tuple(
        max([head_length(printable(head)), *(cell_len(printable(cell)) for cell in column)])
        for head, column in zip(table.heads, cells, strict=True)
    )


def _folded_length(head: str) -> int:
    """Of a head on at most two lines."""
    words = head.split(" ")
    breaks = ((" ".join(words[:place]), " ".join(words[place:])) for place in range(len(words)))
    return min(max(map(cell_len, lines)) for lines in breaks)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _split_shared(table: Table, among: Container[str]) -> tuple[tuple[tuple[str, str], ...], Table]:
    """What several rows all have in the columns of these heads, and the table without it."""
    first, *others = table.rows
    found = [
        place
        for place, cell in enumerate(first)
        if others and table.heads[place] in among and all(row[place] == cell for row in others)
    ]
    shared = tuple((table.heads[place], first[place]) for place in found)
    return shared, table.of_columns([place for place in range(len(first)) if place not in found])


def _split_texts(table: Table) -> tuple[tuple[tuple[str, ...], ...], Table]:
    """What each row has in words, and the table without it."""
    words = [place for place, head in enumerate(table.heads) if head in _TEXT]
    texts = tuple(tuple(row[place] for place in words if row[place] not in NOTHING) for row in table.rows)
    return texts, table.of_columns([place for place in range(len(table.heads)) if place not in words])


def _parts(table: Table, width: int) -> tuple[Part, ...]:
    """The columns in turn beside those that name a row, verdicts first, as few parts as can be.

    The first part has every row, a further one those that have a value in it. None if there are too many, and for one
    row, which is no longer as a block.
    """
    if len(table.rows) == 1:
        return ()
    num_names = _num_names(table)
    others = sorted(range(num_names, len(table.heads)), key=lambda place: table.heads[place] not in _VERDICTS)
    ordered = table.of_columns((*range(num_names), *others))
    tried = (
        _filled(widths, num_names, width) for widths in (_widths(ordered, _folded_length), _least_widths(ordered, [0]))
    )
    places = min((one for one in tried if one), key=len, default=[])
    if len(places) > _MOST_PARTS:
        return ()
    parts = [ordered.of_columns((*range(num_names), *part)) for part in places]
    further = (replace(part, rows=tuple(row for row in part.rows if _has_value(row[num_names:]))) for part in parts[1:])
    drawn = (_beside(part, width) or _wrapped(part, width) for part in (*parts[:1], *further))
    return tuple(part for part in drawn if part is not None)


def _has_value(cells: Sequence[str]) -> bool:
    return any(cell not in NOTHING for cell in cells)


def _filled(widths: Sequence[int], num_names: int, width: int) -> list[list[int]]:
    """Places in order, as many beside the names as there is room for; nothing where one alone is too wide."""
    room = width - _total(widths[:num_names])
    parts: list[list[int]] = [[]]
    for place in range(num_names, len(widths)):
        needed = GAP + widths[place]
        if needed > room:
            return []
        if sum(GAP + widths[other] for other in parts[-1]) + needed > room:
            parts.append([])
        parts[-1].append(place)
    return parts


def _num_names(table: Table) -> int:
    """How many of the first columns tell the rows apart; the first alone where none do."""
    for number in range(1, len(table.heads)):
        if len({row[:number] for row in table.rows}) == len(table.rows):
            return number
    return 1
