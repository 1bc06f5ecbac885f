"""Rounds of pairs in which every node meets every other one once, as many pairs at a time as there can be.

The circle method: the first node keeps its place, the others move on by one place from round to round. Of an even
number n that takes n - 1 rounds, of an odd number n rounds, in each of which one node rests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pybench.model.errors import UsageError

DECISION_ROUNDS = 3
"""After so many rounds every node has met two others or three: enough to tell a slow node from a slow link."""

Pair = tuple[str, str]


def pair_rounds(names: Sequence[str], met: Collection[Pair] = ()) -> tuple[tuple[Pair, ...], ...]:
    """All rounds of the nodes, without the pairs that have ``met``. Raises ``UsageError``.

    A pair's nodes stand in the order of ``names``. Where a node was missing, its pairs are left: call it again with the
    nodes that are there and the pairs that have met.
    """
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UsageError(f"{twice[0]}: named twice; give each node once")
    if len(names) < 2:  # noqa: PLR2004 - a pair
        raise UsageError(f"{len(names)} node: a pair needs two")
    done = {frozenset(pair) for pair in met}
    seats: list[str | None] = [*names, None] if len(names) % 2 else [*names]
    order = {name: place for place, name in enumerate(names)}
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        pairs = [(a, b) if order[a] < order[b] else (b, a) for a, b in facing if a is not None and b is not None]
        rounds.append(tuple(sorted((p for p in pairs if frozenset(p) not in done), key=lambda p: order[p[0]])))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(pairs for pairs in rounds if pairs)
