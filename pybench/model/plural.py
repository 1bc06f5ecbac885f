"""A number with its noun, and nouns with their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def plural(number: int, noun: str, ending: str = "s") -> str:
    """``1 attempt``, ``2 attempts``, ``0 attempts``."""
    return f"{number} {noun}{'' if number == 1 else ending}"


def counted(names: Iterable[str]) -> str:
    """Each name once, as it first comes: ``2 x NVIDIA H200, 1 x NVIDIA A100``; empty without any."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())
