"""Limits of a number, stated once where its field is declared."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST = 1e60
"""Far beyond any quantity that is measured; sums of squares stay finite."""
INTEGERS = range(-(2**63), 2**63)
"""64 bits: enough for every clock and count."""


@dataclass(frozen=True)
class Range:
    """Inclusive limits of a number; ``None`` leaves that side open."""

    minimum: float | None = None
    maximum: float | None = None
