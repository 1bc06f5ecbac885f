"""Two runs of one suite, attempt by attempt."""

from __future__ import annotations

from pybench.core.schedule import Attempt, next_side
from tests.build import Build

build = Build()
POINTS = [build.generate(count) for count in (1, 2)]
PLACES = {point.id: place for place, point in enumerate(POINTS)}


def _order(first: list[Attempt], second: list[Attempt]) -> str:
    """Which side makes which attempt, one at a time: ``A11`` is the first point's first."""
    shown = []
    while (side := next_side(first, second, PLACES)) is not None:
        (point, number), *_ = taken = (first, second)[side]
        taken.pop(0)
        shown.append(f"{'AB'[side]}{PLACES[point.id] + 1}{number}")
    return " ".join(shown)


def _owed(*rounds: int) -> list[Attempt]:
    return [(p, n) for n in rounds for p in (POINTS if n % 2 else POINTS[::-1])]


def test_attempts_are_interleaved_and_each_round_turned_round() -> None:
    """A-B at each point, then B-A at each point backwards: each stack's attempts have the same middle in time."""
    order = _order(_owed(1, 2), _owed(1, 2))
    assert order == "A11 B11 A21 B21 B22 A22 B12 A12"
    places = {side: [n for n, one in enumerate(order.split()) if one[0] == side] for side in "AB"}
    assert sum(places["A"]) == sum(places["B"])


def test_a_run_that_is_behind_catches_up() -> None:
    """After a resumed or failed attempt the earlier round comes first."""
    assert _order(_owed(2), _owed(1, 2)) == "B11 B21 B22 A22 B12 A12"


def test_a_run_that_owes_nothing_leaves_the_other_alone() -> None:
    """To the end."""
    assert _order([], _owed(1)) == "B11 B21"
    assert next_side([], [], PLACES) is None
