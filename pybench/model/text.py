"""Text for people and files: numbers with nouns, amounts of memory, times, bytes of the system."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

BYTE_SCALES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_WHOLE_FROM = 100
_MINUTE_S, _HOUR_S = 60.0, 3600.0


def amount_text(num_bytes: float) -> str:
    """An amount with three digits: ``29.1 GiB``; smaller ones in MiB, KiB or bytes."""
    factor, unit = next((scale for scale in BYTE_SCALES if abs(num_bytes) >= scale[0]), BYTE_SCALES[-1])
    amount = num_bytes / factor
    return f"{amount:,.0f} {unit}" if abs(amount) >= _WHOLE_FROM else f"{amount:.3g} {unit}"


def rough_time(seconds: float) -> str:
    """``40 s``, ``6.0 min`` or ``2.5 h``."""
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_S:.1f} min" if seconds < _HOUR_S else f"{seconds / _HOUR_S:.1f} h"


def os_text(value: str) -> str:
    """``value`` with each byte that is no UTF-8 written out, as four characters."""
    return os.fsencode(value).decode("utf-8", "backslashreplace")


def plural(number: int, noun: str, ending: str = "s") -> str:
    """``1 attempt``, ``2 attempts``, ``0 attempts``."""
    return f"{number} {noun}{'' if number == 1 else ending}"


def counted(names: Iterable[str]) -> str:
    """Each name once, as it first comes: ``2 x NVIDIA H200, 1 x NVIDIA A100``; empty without any."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())


def listed(names: Iterable[str]) -> str:
    """Names in a sentence: ``a``, ``a and b``, ``a, b and c``; empty without names."""
    *first, last = names if (names := tuple(names)) else ("",)
    return f"{', '.join(first)} and {last}" if first else last


def abridged(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first ``most`` of them, and how many follow: ``a, b and 3 more``."""
    first = separator.join(names[:most])
    return f"{first} and {len(names) - most} more" if len(names) > most else first
