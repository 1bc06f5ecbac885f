"""The profile of a machine that names none."""

from __future__ import annotations

import pytest

from pybench.files.suite.profiles import profile_of

PROFILES = ("cpu", "a100", "a100-40gb", "h200", "40gb", "16gb")
GIB = 2**30


@pytest.mark.parametrize(
    ("kind", "memory_gib", "expected"),
    [
        ("h200", 140.4, "h200"),
        ("a100", 79.3, "a100"),
        ("a100", 39.4, "a100-40gb"),
        ("l40s", 45.0, "40gb"),
        ("v100", 15.8, "16gb"),
        ("unknown-t4", 11.9, None),
        ("cpu", None, "cpu"),
        ("unknown-x", None, None),
    ],
)
def test_the_kind_comes_first_then_the_memory(kind: str, memory_gib: float | None, expected: str | None) -> None:
    """As drivers report it; a card of less than the smallest gets none."""
    assert profile_of(PROFILES, kind, None if memory_gib is None else memory_gib * GIB) == expected


def test_names_that_only_look_like_a_memory() -> None:
    """Are profiles of their own."""
    assert profile_of(("40gbx", "x40gb", "gb", "99999gb"), "l40s", 45 * GIB) is None
