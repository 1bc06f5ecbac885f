"""What computing with values that somebody edited may raise."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.evidence.values import Discrepancy

MALFORMED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RecursionError, MemoryError),
)


def guarded(place: str, found: Iterator[Discrepancy]) -> Iterator[Discrepancy]:
    """All of ``found``; where it breaks off on values that make no sense, that is a discrepancy too."""
    try:
        yield from found
    except MALFORMED as error:
        yield Discrepancy(place=place, text=f"cannot be checked: {type(error).__name__}: {error}; it was edited")
