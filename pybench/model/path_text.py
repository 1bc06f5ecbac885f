"""A path as text that every file can hold."""

from __future__ import annotations

import os


def path_text(path: str) -> str:
    """``path`` with each byte that is no UTF-8 written out, as four characters."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
