"""Names of nodes in one text."""

from __future__ import annotations

import pytest

from pybench.compute.node_ranges import node_ranges


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["node3"], "node3"),
        (["node02", "node01", "node03", "node07"], "node[01-03,07]"),
        (["node9", "node10", "node11"], "node[10-11],node9"),
        (["a1", "b1", "a2", "b-gpu"], "b-gpu,a[1-2],b1"),
    ],
)
def test_numbers_are_put_together(names: list[str], text: str) -> None:
    """With as many digits as they have."""
    assert node_ranges(names) == text
