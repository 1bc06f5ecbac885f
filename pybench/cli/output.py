"""Text to standard output, whatever characters the terminal knows."""

from __future__ import annotations

import os
import sys
from shutil import get_terminal_size
from typing import TypedDict

import click

_BLOCKS = dict(zip("▁▂▃▄▅▆▇█", "_.,-~=*#", strict=True))
_ASCII = str.maketrans(
    {**_BLOCKS, "±": "+-", "≥": ">=", "≤": "<=", "→": "->", "µ": "u", "°": "", "─": "-", "…": "...", "·": "."}
)


class TerminalOptions(TypedDict):
    """What a text report is drawn for."""

    width: int
    color: bool


def terminal_options() -> TerminalOptions:
    """The terminal's width, 80 columns where there is none; colour for a terminal that did not refuse it."""
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return {"width": get_terminal_size((80, 24)).columns, "color": color}


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
