"""Names of nodes in one text."""

from __future__ import annotations

import pytest

from pybench.core.numbers import node_ranges


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["node3"], "node3"),
        (["node02", "node01", "node03", "node07"], "node[01-03,07]"),
        (["node9", "node10", "node11"], "node[9-11]"),
        ([f"n{number}" for number in range(1, 17) if number != 6], "n[1-5,7-16]"),
        (["n01", "n02", "n9", "n10", "n11"], "n[9-11,01-02]"),
        (["n8", "n09", "n10"], "n[8,09-10]"),
        (["n9", "n010", "n10"], "n[9-10,010]"),
        (["n0", "n00", "n1"], "n[0-1,00]"),
        (["n99", "n100", "n0100"], "n[99-100,0100]"),
        (["n3", "n10", "n10", "n001", "n02", "n100"], "n[3,02,10,001,100]"),
        (["a1", "b1", "a2", "b-gpu"], "a[1-2],b1,b-gpu"),
        (["x9y", "x10y"], "x10y,x9y"),
    ],
)
def test_numbers_are_put_together(names: list[str], text: str) -> None:
    """Numbers keep all of their digits."""
    assert node_ranges(names) == text
