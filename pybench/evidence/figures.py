"""Claimed results beside results that were computed again: every value that differs, by its place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

# Sums are taken in another order by another build of numpy; no figure is printed with as many digits.
TOLERANCE = 1e-9
UNCLAIMED = "nothing is claimed"
_NAMES = ("id", "point_id", "name", "subject", "metric", "count", "uuid")


def differences(
    claimed: Any,  # noqa: ANN401 - a value of JSON
    computed: Any,  # noqa: ANN401 - a value of JSON
    place: str = "",
    tolerance: float = TOLERANCE,
) -> Iterator[tuple[str, str]]:
    """Place and both values of everything in ``claimed`` that is not in ``computed``, and the other way round.

    Both are values of JSON. Numbers are equal within the relative ``tolerance``.
    """
    if isinstance(claimed, dict) and isinstance(computed, dict):
        for name in dict.fromkeys((*claimed, *computed)):
            inside = f"{place}.{name}" if place else str(name)
            if name not in computed:
                yield inside, f"{_shown(claimed[name])} is claimed, nothing follows"
            elif name not in claimed:
                yield inside, f"{UNCLAIMED}, {_shown(computed[name])} follows"
            else:
                yield from differences(claimed[name], computed[name], inside, tolerance)
    elif isinstance(claimed, list) and isinstance(computed, list):
        yield from _of_lists(claimed, computed, place, tolerance)
    elif not equal(claimed, computed, tolerance):
        yield place, f"{_shown(claimed)} is claimed, {_shown(computed)} follows"


def num_values(value: Any) -> int:  # noqa: ANN401 - a value of JSON
    """How many numbers, texts and other single values are inside."""
    if isinstance(value, dict):
        return sum(map(num_values, value.values()))
    return sum(map(num_values, value)) if isinstance(value, list) else 1


def _of_lists(claimed: list[Any], computed: list[Any], place: str, tolerance: float) -> Iterator[tuple[str, str]]:
    """Entries side by side where as many are there; else those that only one side has, by name."""
    if len(claimed) == len(computed):
        for index, (one, other) in enumerate(zip(claimed, computed, strict=True)):
            yield from differences(one, other, f"{place}[{_name(other, index)}]", tolerance)
        return
    names = [[_name(entry, index) for index, entry in enumerate(side)] for side in (claimed, computed)]
    yield place, f"{len(claimed)} entries are claimed, {len(computed)} follow"
    for name in names[1]:
        if name not in names[0]:
            yield f"{place}[{name}]", "is not claimed, but follows"
    for name in names[0]:
        if name not in names[1]:
            yield f"{place}[{name}]", "is claimed, but does not follow"


def _name(entry: Any, index: int) -> str:  # noqa: ANN401 - a value of JSON
    named = [str(entry[key]) for key in _NAMES if isinstance(entry, dict) and entry.get(key) is not None]
    return " ".join(named) or str(index)


def equal(claimed: Any, computed: Any, tolerance: float = TOLERANCE) -> bool:  # noqa: ANN401 - values of JSON
    """Whether two single values of JSON are one; numbers within the relative ``tolerance``.

    An integer may be larger than any float: it is close to nothing but itself.
    """
    numbers = (int, float)
    if isinstance(claimed, bool) or isinstance(computed, bool):
        return claimed is computed
    if isinstance(claimed, numbers) and isinstance(computed, numbers):
        return claimed == computed or _is_close(claimed, computed, tolerance)
    return type(claimed) is type(computed) and bool(claimed == computed)


def _is_close(claimed: float, computed: float, tolerance: float) -> bool:
    try:
        return math.isclose(claimed, computed, rel_tol=tolerance)
    except OverflowError:
        return False


def _shown(value: Any) -> str:  # noqa: ANN401 - a value of JSON
    text = f"{value:.10g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"  # noqa: PLR2004 - a line of a report
