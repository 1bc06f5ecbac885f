"""Sentences about points."""

from __future__ import annotations

from pybench.explain.notes import stated_once


def test_a_sentence_stands_once_with_its_points() -> None:
    """In the order of first use."""
    found = [("a", "no floor"), ("b", "no benchmark"), ("b", "no floor"), ("c", "no floor")]
    assert list(stated_once(found)) == ["a, b, c: no floor", "b: no benchmark"]
    assert list(stated_once([])) == []
