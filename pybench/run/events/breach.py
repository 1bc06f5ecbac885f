"""A rule of the contract that a rank broke, as an error that names the rank and the field."""

from __future__ import annotations


def require(held: bool, rank: int, field: str, problem: str) -> None:
    """Raise ``ValueError`` with the ``problem`` of a rank's field, unless the rule is ``held``."""
    if not held:
        raise broken(rank, field, problem)


def same(rank: int, field: str, found: object, expected: object) -> None:
    """Raise ``ValueError`` where a rank reported another value than the one expected."""
    if found != expected:
        raise broken(rank, field, f"found {str(found)[:200]!r}, expected {str(expected)!r}")


def broken(rank: int, field: str, problem: str) -> ValueError:
    """The error of a rank's field."""
    return ValueError(f"rank {rank}: {field}: {problem}")
