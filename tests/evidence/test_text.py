"""Text of a verification."""

from __future__ import annotations

from pybench.evidence.text import render
from pybench.evidence.values import Discrepancy, Verification


def _not_checked(*places: str) -> str:
    found = [Discrepancy("owed", place, "no record", "not checked") for place in places]
    return render(Verification(run_id="run", discrepancies=tuple(found)))


def test_few_places_of_one_text_have_a_line_each() -> None:
    """Each with the text."""
    assert "Not checked (2)\n  a, attempt 2: no record\n  b, attempt 2: no record\n" in _not_checked(
        "a, attempt 2", "b, attempt 2"
    )


def test_many_places_of_one_text_share_it() -> None:
    """The first four are named; all count."""
    shown = _not_checked("other.json", *(f"p{number}" for number in range(5)))
    assert shown.endswith(
        "Not checked (6)\n  6 places: no record: other.json; p0; p1; p2; and 2 more (--json FILE has all)\n"
    )


def test_a_narrow_terminal_has_every_line() -> None:
    """Continuations of an indented line are indented further."""
    found = Discrepancy("results", "results.json", "'pass' is claimed, 'missing' follows", "does not hold")
    shown = render(Verification(run_id="run", discrepancies=(found,)), width=40)
    assert max(map(len, shown.splitlines())) <= 40
    assert shown.endswith("Does not hold (1)\n  results.json: 'pass' is claimed,\n    'missing' follows\n")
    assert max(map(len, render(Verification(run_id="run", discrepancies=()), width=40).splitlines())) <= 40
