"""Text to standard output, whatever characters the terminal knows."""

from __future__ import annotations

import sys

import click

_ASCII = str.maketrans({"±": "+-", "≥": ">=", "≤": "<=", "→": "->", "µ": "u", "°": "", "─": "-", "…": "..."})


def echo(text: str, *, nl: bool = True) -> None:
    """Print ``text``; an encoding that lacks a character gets its usual substitute, or a question mark."""
    click.echo(encodable(text, sys.stdout.encoding), nl=nl)


def encodable(text: str, encoding: str | None) -> str:
    """``text`` in characters that ``encoding`` has."""
    wanted = encoding or "ascii"
    try:
        text.encode(wanted)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(wanted, "replace").decode(wanted)
    return text
