"""Who arrives last: at a barrier the slow node waits for nobody, and all others wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median

from pybench.core.statistics.binomial import at_least
from pybench.core.statistics.false_discovery import discoveries
from pybench.fleet.values import Barriers, Evidence
from pybench.model.change import SmallestEffects
from pybench.model.plural import plural

MIN_BARRIERS = 8
"""Fewer show no habit."""


def late_nodes(barriers: Barriers, effects: SmallestEffects) -> dict[str, Evidence]:
    """Nodes that arrive last more often than their share, and later than clocks and the smallest effect explain.

    The interval between barriers is what the smallest effect is a fraction of.
    """
    whole = _whole(barriers)
    if len(whole) < MIN_BARRIERS:
        return {}
    nodes = {name: None for one in whole for name in one}
    interval_s = _interval_s(whole)
    counts = {node: _times_last(node, whole) for node in nodes}
    stand = discoveries({node: _p(last, shares) for node, (last, shares) in counts.items()})
    least_s = max(barriers.clock_bound_s, effects.default * interval_s)
    found = {}
    for node in (node for node in counts if node in stand):
        late_s = median(_late_s(node, whole))
        if late_s >= least_s:
            last, shares = counts[node]
            found[node] = Evidence(
                group="barriers",
                text=f"last at {last} of {len(shares)}, by {1e3 * late_s:.3g} ms "
                f"(clocks are joined to {1e3 * barriers.clock_bound_s:.2g} ms)",
                fraction=-late_s / interval_s if interval_s else None,
                p=_p(last, shares),
            )
    return found


def too_few(barriers: Barriers) -> Iterator[str]:
    """A note where there are not enough barriers at which nodes met."""
    if (num := len(_whole(barriers))) < MIN_BARRIERS:
        yield f"{plural(num, 'barrier')} of several nodes: {MIN_BARRIERS} are the least that show who arrives last"


def _whole(barriers: Barriers) -> list[dict[str, float]]:
    return [one for one in barriers.arrivals_s if len(one) > 1]


def _interval_s(barriers: list[dict[str, float]]) -> float:
    return max(0.0, median(max(b.values()) - max(a.values()) for a, b in pairwise(barriers)))


def _times_last(node: str, barriers: list[dict[str, float]]) -> tuple[int, list[float]]:
    """How often it was last, alone, and its share of each barrier by chance."""
    own = [one for one in barriers if node in one]
    return sum(_is_last(node, one) for one in own), [1 / len(one) for one in own]


def _is_last(node: str, arrivals_s: Mapping[str, float]) -> bool:
    return all(time < arrivals_s[node] for other, time in arrivals_s.items() if other != node)


def _late_s(node: str, barriers: list[dict[str, float]]) -> Iterator[float]:
    """How long after the middle of the others it arrives."""
    for one in barriers:
        if node in one:
            yield one[node] - median(time for other, time in one.items() if other != node)


def _p(last: int, shares: list[float]) -> float:
    """Probability of being last so often by chance: the tail of a binomial distribution of their mean share."""
    return at_least(last, len(shares), sum(shares) / max(len(shares), 1))
