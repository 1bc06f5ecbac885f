"""Amounts of memory, and changes that need less of it, as messages have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pybench.compute.numbers import quantity
from pybench.model.results import Estimate

# What is planned is an estimate, or compared with one.
_DIGITS = 3
_Settings = TypeVar("_Settings")


def amount_text(num_bytes: float) -> str:
    """In the unit of reports, with three digits: ``29.1 GiB``; less than one in MiB, KiB or bytes."""
    return quantity(Estimate(value=num_bytes, low=None, high=None, unit="bytes"), _DIGITS)


def first_that_fit(changes: Iterable[tuple[str, str, _Settings]], fits: Callable[[_Settings], bool]) -> tuple[str, ...]:
    """Of each setting its first value that fits, as ``setting = value``; a change is both and the changed settings."""
    found: dict[str, str] = {}
    for setting, value, changed in changes:
        if setting not in found and fits(changed):
            found[setting] = f"{setting} = {value}"
    return tuple(found.values())
