"""Names of nodes as a scheduler writes them: ``node[01-03,07]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)(\d{1,18})")


def node_ranges(names: Iterable[str]) -> str:
    """All names in one text, sorted; numbers at the end of equal names, with as many digits, are put together."""
    by_prefix: dict[tuple[str, int], list[int]] = {}
    others = []
    for name in sorted(set(names)):
        if found := _NUMBERED.fullmatch(name):
            by_prefix.setdefault((found[1], len(found[2])), []).append(int(found[2]))
        else:
            others.append(name)
    return ",".join((*others, *(_bracketed(prefix, digits, own) for (prefix, digits), own in by_prefix.items())))


def _bracketed(prefix: str, digits: int, numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]:0{digits}}" + (f"-{run[-1]:0{digits}}" if len(run) > 1 else "") for run in runs]
    return f"{prefix}{texts[0]}" if len(numbers) == 1 else f"{prefix}[{','.join(texts)}]"
