"""Text from outside, made safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line of ``text`` without control characters: a worker's message must not steer the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def cut(text: str, room: int) -> str:
    """``text``, or as much of it as there is room for."""
    return text if len(text) <= room else f"{text[: max(room - 3, 0)]}..."


def ends(text: str, room: int) -> str:
    """``text``, or as much of its beginning and its end as there is room for: a message ends with what to do next."""
    half = (room - 5) // 2
    return text if len(text) <= room else f"{text[:half]} ... {text[-half:]}"
