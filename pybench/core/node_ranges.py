"""Names of nodes as a scheduler writes them: ``node[01-03,07]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_NUMBERED = re.compile(r"(.*?)(\d{1,18})")


def node_ranges(names: Iterable[str]) -> str:
    """All names in one text, sorted; numbers at the end of equal names are put together as ``scontrol`` does.

    A run of numbers has one width: ``9`` and ``10`` are one, as are ``09`` and ``10``, but not ``9`` and ``010``.
    """
    by_prefix: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        found = _NUMBERED.fullmatch(name)
        prefix, number = (found[1], found[2]) if found else (name, "")
        by_prefix.setdefault(prefix, []).append(number)
    return ",".join(text for prefix in sorted(by_prefix) for text in _texts(prefix, by_prefix[prefix]))


def _texts(prefix: str, numbers: Sequence[str]) -> Iterator[str]:
    """The name without a number, if it is among them, then all with one."""
    numbered = [number for number in numbers if number]
    if len(numbered) < len(numbers):
        yield prefix
    if len(numbered) == 1:
        yield f"{prefix}{numbered[0]}"
    elif numbered:
        yield f"{prefix}[{','.join(_runs(numbered))}]"


def _runs(numbers: Sequence[str]) -> Iterator[str]:
    """Runs such as ``01-03``: each from its first number to its last, those of fewer digits first."""
    runs: list[tuple[str, str]] = []
    for number in sorted(numbers, key=lambda text: (int(text), len(text))):
        place = next((place for place, run in enumerate(runs) if _next(*run) == number), None)
        if place is None:
            runs.append((number, number))
        else:
            runs[place] = (runs[place][0], number)
    for first, last in sorted(runs, key=lambda run: (len(run[0]), int(run[0]))):
        yield first if first == last else f"{first}-{last}"


def _next(first: str, last: str) -> str:
    """The number behind a run: as wide as its first one where that begins with zeros."""
    width = len(first) if first.startswith("0") else 1
    return f"{int(last) + 1:0{width}}"
