"""A number with its noun, and nouns with their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


def plural(number: int, noun: str, ending: str = "s") -> str:
    """``1 attempt``, ``2 attempts``, ``0 attempts``."""
    return f"{number} {noun}{'' if number == 1 else ending}"


def counted(names: Iterable[str]) -> str:
    """Each name once, as it first comes: ``2 x NVIDIA H200, 1 x NVIDIA A100``; empty without any."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())


def listed(names: Iterable[str]) -> str:
    """In a sentence: ``a``, ``a and b``, ``a, b and c``; empty without any."""
    *first, last = names if (names := tuple(names)) else ("",)
    return f"{', '.join(first)} and {last}" if first else last


def abridged(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first ``most`` of them, and how many follow: ``a, b and 3 more``."""
    first = separator.join(names[:most])
    return f"{first} and {len(names) - most} more" if len(names) > most else first
