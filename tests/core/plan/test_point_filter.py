"""The -k expression."""

from __future__ import annotations

import pytest

from pybench.core.plan import parse_filter
from pybench.model.errors import UsageError

IDS = ["decode[backend=torch,tensor_parallel=1]", "decode[backend=torch,tensor_parallel=8]", "train"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("DECODE", [0, 1]),
        ("not train", [0, 1]),
        ("train or tensor_parallel=8", [1, 2]),
        ("decode and not tensor_parallel=8", [0]),
        ("not (train or parallel=1])", [1]),
        ("decode or train and parallel=8", [0, 1]),
        ("not not train", [2]),
    ],
)
def test_keeps(text: str, kept: list[int]) -> None:
    """Words match in any case; 'and' binds tighter than 'or'."""
    accept = parse_filter(text)
    assert [index for index, point_id in enumerate(IDS) if accept(point_id)] == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1 on"),
        ("a and", "column 6 on"),
        ("(a", "column 1 on"),
        ("a b", "column 3 on"),
        ("or a", "column 1 on"),
        ("a  & b", "column 1 on; valid are"),
        ("~a", "column 1 on"),
        ("a # b", "column 3 on"),
        ("a(b)", "column 1 on"),
        ("a and 'b'", "column 7 on"),
        ("not " * 100_000 + "a", "column 1 on"),
    ],
)
def test_refuses(text: str, message: str) -> None:
    """A slip is named with its column."""
    with pytest.raises(UsageError, match=message):
        parse_filter(text)


@pytest.mark.no_cover  # short expressions, above, reach all that it does
def test_a_long_expression_is_no_deep_one() -> None:
    """20,000 words in a row, by either conjunction."""
    words = " or ".join(f"w{number}" for number in range(20_000))
    assert parse_filter(words)("x-w19999")
    assert not parse_filter(words)("x")
    assert parse_filter(" and ".join(["x"] * 20_000))("x")
