"""Nodes measured in pairs: the pairs to measure, and whether a node or a link between two nodes is slow.

Pairs of one kind (metric, point, message size, rail) are compared, as logarithms. A node is slow where all its pairs
are low. The slowest such node is removed with its pairs and the rest is judged again, so that its partners are not
blamed. Of the remaining pairs, a low one is a slow link if both of its nodes reach others at the usual speed.

Pairs of one node are not independent. If all spread is between nodes, the mean of a node's k pairs has (1 + 1/k)/2 of
the variance v of a pair, and the mean of all pairs of n nodes 2 v/(n - 1). This upper limit is used for a node.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median

from pybench.core.measurements import grouped
from pybench.core.node_checks import SLOWER_FRACTION
from pybench.core.statistics.distributions import upper_tail
from pybench.core.statistics.false_discovery import FALSE_DISCOVERIES, discoveries
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import pooled, pulled_in, variance_of
from pybench.core.statistics.units import others_by_unit, spread_of
from pybench.fleet.figures import bad_fraction
from pybench.fleet.values import FleetLink, PairFigure, Symptom
from pybench.model.errors import UsageError
from pybench.model.figures import SmallestEffects
from pybench.model.workloads.registry import METRICS

DECISION_ROUNDS = 3
"""After three rounds every node has met two or three others, which separates a slow node from a slow link."""
_MIN_PAIRS = 2
"""With one partner, a slow node and a slow link look the same; one pair has no spread."""

Pair = tuple[str, str]


def pair_rounds(names: Sequence[str], met: Collection[Pair] = ()) -> tuple[tuple[Pair, ...], ...]:
    """All rounds in which every node meets every other one once, without the pairs that have ``met``.

    The circle method: the first node keeps its place, the others move on by one place. An even number n of nodes takes
    n - 1 rounds, an odd number n rounds. Raises ``UsageError``.
    """
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UsageError(f"{twice[0]}: named twice; give each node once")
    if len(names) < 2:  # noqa: PLR2004 - a pair
        raise UsageError(f"{len(names)} node: a pair needs two")
    done = {frozenset(pair) for pair in met}
    order = {name: place for place, name in enumerate(names)}
    seats: list[str | None] = [*names, None] if len(names) % 2 else [*names]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        pairs = [(a, b) if order[a] < order[b] else (b, a) for a, b in facing if a is not None and b is not None]
        rounds.append(tuple(sorted((p for p in pairs if frozenset(p) not in done), key=lambda p: order[p[0]])))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(pairs for pairs in rounds if pairs)


@dataclass(frozen=True)
class SlowPairs:
    """Results of pairs: symptoms by node, slow links, and notes on undecided pairs."""

    symptoms: Mapping[str, Sequence[Symptom]]
    links: tuple[FleetLink, ...]
    notes: tuple[str, ...]


def slow_pairs(pairs: Sequence[PairFigure], effects: SmallestEffects) -> SlowPairs:
    """Judge each kind of pairs separately."""
    symptoms: dict[str, list[Symptom]] = {}
    links: list[FleetLink] = []
    notes: list[str] = []
    for of_kind in grouped((pair.kind, pair) for pair in pairs).values():
        measured = grouped((_ends(pair), pair) for pair in of_kind)
        values = {ends: _value(figures) for ends, figures in sorted(measured.items())}
        rest = _Kind(of_kind, values, math.log1p(effects.of(of_kind[0].metric)))
        while slow := rest.slowest():
            symptoms.setdefault(slow[0], []).append(slow[1])
            rest = replace(rest, values={pair: v for pair, v in rest.values.items() if slow[0] not in pair})
        links += rest.slow_links()
        notes += rest.undecided()
    return SlowPairs(symptoms, tuple(links), tuple(dict.fromkeys(notes)))


@dataclass(frozen=True)
class _Kind:
    """Pairs of one kind. ``values`` is the logarithm of each pair, higher is better; ``smallest`` the least effect."""

    pairs: Sequence[PairFigure]
    values: Mapping[Pair, float]
    smallest: float

    def slowest(self) -> tuple[str, Symptom] | None:
        """The slowest node all of whose pairs are low beyond chance."""
        by_node = grouped((node, value) for pair, value in self.values.items() for node in pair)
        slow = []
        for node, own in by_node.items():
            others = [value for pair, value in self.values.items() if node not in pair]
            if min(len(own), len(others)) < _MIN_PAIRS or max(own) - fmean(near := pulled_in(others)) > -self.smallest:
                continue
            # The median of a node's pairs, and their spread: one slow link among them must change neither too much.
            variance, freedom = pooled([(variance_of(own), len(own) - 1), spread_of(near)])
            error = math.sqrt(variance * ((1 + 1 / len(own)) / 2 + 2 / (len(by_node) - 1)))
            deviation = median(own) - fmean(near)
            p = upper_tail(-deviation / error, freedom)
            if p <= FALSE_DISCOVERIES / len(by_node) or as_fraction(deviation) <= -SLOWER_FRACTION:
                slow.append((deviation, node, p, len(own)))
        if not slow:
            return None
        rail, (deviation, node, p, num) = self.pairs[0].rail, min(slow)
        return node, Symptom(
            group="pairs",
            text=f"{'' if rail is None else f'rail {rail}; '}with all of its {num} partners",
            fraction=as_fraction(deviation),
            p=p,
            num_low=num,
            num_measured=num,
            is_bad=as_fraction(deviation) <= -bad_fraction(self.pairs[0].metric, on_gpu=True),
        )

    def slow_links(self) -> Iterator[FleetLink]:
        """Pairs that are low while both nodes reach others at the usual speed."""
        least = bad_fraction(self.pairs[0].metric, on_gpu=True)
        for pair, (deviation, p) in self.low_pairs.items():
            if not all(self._reaches_others(node, pair) for node in pair):
                continue
            usual = self.values[pair] - deviation
            fractions = [as_fraction(_value([figure]) - usual) for figure in self.pairs if _ends(figure) == pair]
            is_bad = as_fraction(deviation) <= -SLOWER_FRACTION or sum(f <= -least for f in fractions) >= _MIN_PAIRS
            yield FleetLink(
                nodes=pair,
                state="bad" if is_bad else "suspect",
                fraction=as_fraction(deviation),
                p=p,
                metric=self.pairs[0].metric,
                rail=self.pairs[0].rail,
                num_low=sum(math.log1p(f) <= -self.smallest for f in fractions),
            )

    def undecided(self) -> Iterator[str]:
        """Notes on pairs that decide nothing."""
        if 0 < len(self.values) <= _MIN_PAIRS:
            names = ", ".join(f"{a} - {b}" for a, b in self.values)
            yield f"pairs: {names}: too few to show whether a node or a link is slow; measure more nodes in pairs"
        for pair, (deviation, _) in self.low_pairs.items():
            for node, other in (pair, pair[::-1]):
                if not self._reaches_others(node, pair):
                    low = f"{-100 * as_fraction(deviation):.1f} % below the other pairs"
                    yield f"pairs: {node} with {other} is {low}, and {node} reaches no other node faster: node or link"

    @cached_property
    def low_pairs(self) -> dict[Pair, tuple[float, float]]:
        """Pairs below all others beyond chance: deviation, and its probability by chance."""
        if len(self.values) <= _MIN_PAIRS:
            return {}
        others = dict(others_by_unit(self.values, (0.0, 0.0)))
        deviations = {pair: (v - others[pair].mean, others[pair].p_lower(v)) for pair, v in self.values.items()}
        low = discoveries({pair: p for pair, (_, p) in deviations.items()})
        return {
            pair: (deviation, p)
            for pair, (deviation, p) in deviations.items()
            if deviation <= -self.smallest and (pair in low or as_fraction(deviation) <= -SLOWER_FRACTION)
        }

    def _reaches_others(self, node: str, pair: Pair) -> bool:
        """Whether a node has a faster pair than this one, by more than half of this one's shortfall."""
        limit = (self.values[pair] + median(self.values.values())) / 2
        return any(value > limit for other, value in self.values.items() if node in other and other != pair)


def _value(measured: Sequence[PairFigure]) -> float:
    """Logarithm of the median over all measurements of a pair, higher is better."""
    return METRICS[measured[0].metric].sign * math.log(median(value for pair in measured for value in pair.values))


def _ends(pair: PairFigure) -> Pair:
    first, second = sorted(pair.nodes)
    return first, second
