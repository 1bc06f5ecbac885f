"""A number with its noun."""

from __future__ import annotations

import pytest

from pybench.model.text import abridged, listed, plural


@pytest.mark.parametrize(
    ("number", "runs", "processes"),
    [(0, "0 runs", "0 processes"), (1, "1 run", "1 process"), (2, "2 runs", "2 processes")],
)
def test_one_alone_is_singular(number: int, runs: str, processes: str) -> None:
    """With an s, or the noun's own ending."""
    assert plural(number, "run") == runs
    assert plural(number, "process", "es") == processes


@pytest.mark.parametrize(
    ("names", "text"), [((), ""), (("a",), "a"), (("a", "b"), "a; b"), (("a", "b", "c", "d"), "a; b and 2 more")]
)
def test_a_long_list_has_its_first_names_and_a_number(names: tuple[str, ...], text: str) -> None:
    """None is left out without being counted."""
    assert abridged(names, 2, "; ") == text


def test_names_in_a_sentence() -> None:
    """With one ``and``."""
    names = ("torch", "transformers", "accelerate")
    assert [listed(names[:number]) for number in range(4)] == [
        "",
        "torch",
        "torch and transformers",
        "torch, transformers and accelerate",
    ]
