"""Bytes of the system, such as a path, an argument or a variable, as text for any file."""

from __future__ import annotations

import os


def os_text(value: str) -> str:
    """``value`` with each byte that is no UTF-8 written out, as four characters."""
    return os.fsencode(value).decode("utf-8", "backslashreplace")
