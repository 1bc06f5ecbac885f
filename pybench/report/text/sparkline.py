"""A series of values as one line of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = "·"
LEAST_RANGE_FRACTION = 0.02
"""A line spans at least 2 % of its middle value, so that noise does not look like news."""


def sparkline(values: Sequence[float | None], width: int = 30) -> str:
    """At most ``width`` blocks, each the median of its share of the values by time; a dot where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    middle = median(known)
    room = max(max(known) - min(known), LEAST_RANGE_FRACTION * abs(middle))
    centre = (max(known) + min(known)) / 2
    columns = min(width, len(values))
    cuts = [len(values) * column // columns for column in range(columns + 1)]
    shares = ([v for v in values[start:end] if v is not None] for start, end in pairwise(cuts))
    return "".join(
        _block(0.5 + (median(share) - centre) / room if room else 0.5) if share else _GAP for share in shares
    )


def _block(height: float) -> str:
    return _BLOCKS[min(int(height * len(_BLOCKS)), len(_BLOCKS) - 1)]
