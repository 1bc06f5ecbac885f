"""Changes of settings that need less memory, as messages have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_Settings = TypeVar("_Settings")


def first_that_fit(changes: Iterable[tuple[str, str, _Settings]], fits: Callable[[_Settings], bool]) -> tuple[str, ...]:
    """Of each setting its first value that fits, as ``setting = value``; a change is both and the changed settings."""
    found: dict[str, str] = {}
    for setting, value, changed in changes:
        if setting not in found and fits(changed):
            found[setting] = f"{setting} = {value}"
    return tuple(found.values())
