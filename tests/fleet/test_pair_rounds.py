"""Rounds of pairs."""

from __future__ import annotations

from itertools import combinations

import pytest

from pybench.fleet.pairs import DECISION_ROUNDS, pair_rounds
from pybench.model.errors import UsageError


def names(num: int) -> list[str]:
    return [f"n{place:02}" for place in range(num)]


@pytest.mark.parametrize(("num", "rounds"), [(2, 1), (3, 3), (4, 3), (5, 5), (16, 15), (17, 17), (64, 63)])
def test_every_node_meets_every_other_one_once(num: int, rounds: int) -> None:
    """N - 1 rounds for an even number, n for an odd one; a node is in at most one pair of a round."""
    found = pair_rounds(names(num))
    assert len(found) == rounds
    assert sorted(pair for pairs in found for pair in pairs) == list(combinations(names(num), 2))
    for pairs in found:
        assert len({name for pair in pairs for name in pair}) == 2 * len(pairs) == num - num % 2


@pytest.mark.parametrize("num", [4, 5, 16, 33, 64])
def test_three_rounds_let_every_node_meet_two_others(num: int) -> None:
    """Three others, where the number is even."""
    met = [name for pairs in pair_rounds(names(num))[:DECISION_ROUNDS] for pair in pairs for name in pair]
    assert min(met.count(name) for name in names(num)) >= 3 - num % 2


def test_what_a_missing_node_left_is_made_up_for() -> None:
    """n02 missed the first round: pairs that met are left out, the others are in whole rounds."""
    first = [pair for pair in pair_rounds(names(6))[0] if "n02" not in pair]
    rest = pair_rounds(names(6), met=[(b, a) for a, b in first])
    assert sorted((*first, *(pair for pairs in rest for pair in pairs))) == list(combinations(names(6), 2))
    gone = pair_rounds([name for name in names(6) if name != "n02"], met=first)
    assert not any("n02" in pair for pairs in gone for pair in pairs)


@pytest.mark.parametrize(("given", "message"), [(["a", "b", "a"], "a: named twice"), (["a"], "a pair needs two")])
def test_names_that_make_no_pairs(given: list[str], message: str) -> None:
    """One line each."""
    with pytest.raises(UsageError, match=message):
        pair_rounds(given)
