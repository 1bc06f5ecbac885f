"""A number with its noun."""

from __future__ import annotations


def plural(number: int, noun: str, ending: str = "s") -> str:
    """``1 attempt``, ``2 attempts``, ``0 attempts``."""
    return f"{number} {noun}{'' if number == 1 else ending}"
