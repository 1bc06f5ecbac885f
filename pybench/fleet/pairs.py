"""Whether a node is slow with every partner, or one link between two nodes is.

Pairs of one kind (metric, message size, rail) are compared, as logarithms. A node whose pairs are all low is slow: its
pairs are held against those without it. The slowest such node is taken out with its pairs, and the others are judged
again, so that its partners are not blamed. Of what is left, one pair that lies below the others by more than chance
explains is a slow link, if both nodes reach others as usual; of several measurements of a pair those count that are low
themselves.

Pairs of one node share what that node does, so that k of them are not k independent values. Where all spread is the
nodes', the mean of a node's k pairs has (1 + 1/k)/2 of the variance v of a pair, and that of all pairs of n nodes
2 v/(n - 1): this upper limit is the error that a node is judged with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from statistics import fmean, median

from pybench.core.node.links import SLOWER_FRACTION
from pybench.core.statistics.false_discovery import FALSE_DISCOVERIES, discoveries
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import pooled, pulled_in, variance_of
from pybench.core.statistics.student_t import upper_tail
from pybench.fleet.figures import spread_of
from pybench.fleet.values import Evidence, FleetLink, PairFigure
from pybench.model.change import SmallestEffects
from pybench.model.workloads.registry import METRICS

_LEAST_PAIRS = 2
"""A node that met one partner cannot be known from the link to it, and one pair shows no spread."""

_Values = Mapping[tuple[str, str], float]
"""Logarithm of each pair of one kind, higher is better."""


@dataclass(frozen=True)
class SlowPairs:
    """What pairs show: evidence by node, links, and what cannot be decided."""

    evidence: Mapping[str, Sequence[Evidence]]
    links: tuple[FleetLink, ...]
    notes: tuple[str, ...]


def slow_pairs(pairs: Sequence[PairFigure], effects: SmallestEffects) -> SlowPairs:
    """Judge every kind of pairs by itself."""
    evidence: dict[str, list[Evidence]] = {}
    links: list[FleetLink] = []
    notes: list[str] = []
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        found = _Kind.of([pair for pair in pairs if pair.kind == kind], effects)
        for one in found.slow_nodes():
            evidence.setdefault(one.node, []).append(found.evidence(one))
        links += found.slow_links()
        notes += found.undecided()
    return SlowPairs(evidence, tuple(links), tuple(dict.fromkeys(notes)))


@dataclass(frozen=True)
class _SlowNode:
    node: str
    deviation: float
    p: float
    num_pairs: int


@dataclass(frozen=True)
class _Kind:
    """Pairs of one kind."""

    pairs: Sequence[PairFigure]
    values: _Values
    smallest: float

    @classmethod
    def of(cls, pairs: Sequence[PairFigure], effects: SmallestEffects) -> _Kind:
        values = {key: _value([*own]) for key, own in groupby(sorted(pairs, key=_key), _key)}
        return cls(pairs, values, math.log1p(effects.of(pairs[0].metric)))

    def slow_nodes(self) -> Iterator[_SlowNode]:
        """Nodes whose pairs are all low, the slowest first; each is judged without those before it."""
        left = self
        while found := left.slowest():
            yield found
            left = left.without(found.node)

    def slow_links(self) -> Iterator[FleetLink]:
        """Pairs that are low while both nodes reach others as usual."""
        for pair, deviation, p in self.left.low_pairs:
            if all(self.left.reaches_others(node, pair) for node in pair):
                num = self.left.num_low(pair)
                yield FleetLink(
                    nodes=pair,
                    state="bad" if _is_certain(deviation) or num >= _LEAST_PAIRS else "suspect",
                    fraction=as_fraction(deviation),
                    p=p,
                    metric=self.pairs[0].metric,
                    rail=self.pairs[0].rail,
                    num_separate=num,
                )

    def undecided(self) -> Iterator[str]:
        """What pairs cannot show."""
        if len(self.values) <= _LEAST_PAIRS:
            names = ", ".join(f"{a} - {b}" for a, b in self.values)
            yield f"pairs: {names}: too few to show whether a node or a link is slow; measure more nodes in pairs"
        for pair, deviation, _ in self.left.low_pairs:
            for node in pair:
                if not self.left.reaches_others(node, pair):
                    other = pair[1] if node == pair[0] else pair[0]
                    low = f"{-100 * as_fraction(deviation):.1f} % below the other pairs"
                    yield f"pairs: {node} with {other} is {low}, and {node} reaches nobody better: node or link"

    def evidence(self, found: _SlowNode) -> Evidence:
        """Of a slow node."""
        rail = self.pairs[0].rail
        where = "" if rail is None else f"rail {rail}; "
        return Evidence(
            group="pairs",
            text=f"{where}with all of its {found.num_pairs} partners",
            fraction=as_fraction(found.deviation),
            p=found.p,
            num_separate=found.num_pairs,
            num_measured=found.num_pairs,
        )

    @cached_property
    def left(self) -> _Kind:
        """Without the pairs of slow nodes."""
        left = self
        for found in self.slow_nodes():
            left = left.without(found.node)
        return left

    @cached_property
    def low_pairs(self) -> tuple[tuple[tuple[str, str], float, float], ...]:
        """Pairs that lie below all others, with how far and the probability by chance."""
        if len(self.values) <= _LEAST_PAIRS:
            return ()
        found = {pair: self._against_others(pair) for pair in self.values}
        stand = discoveries({pair: p for pair, (_, p) in found.items()})
        return tuple(
            (pair, deviation, p)
            for pair, (deviation, p) in found.items()
            if (pair in stand or _is_certain(deviation)) and deviation <= -self.smallest
        )

    def slowest(self) -> _SlowNode | None:
        """The slowest node of those that stand."""
        nodes = tuple(dict.fromkeys(node for pair in self.values for node in pair))
        judged = [found for node in nodes if (found := self._of_node(node, len(nodes))) is not None]
        stand = [one for one in judged if one.p <= FALSE_DISCOVERIES / len(nodes) or _is_certain(one.deviation)]
        return min(stand, key=lambda one: one.deviation, default=None)

    def without(self, node: str) -> _Kind:
        """Without a node's pairs."""
        return replace(self, values={pair: value for pair, value in self.values.items() if node not in pair})

    def reaches_others(self, node: str, pair: tuple[str, str]) -> bool:
        """Whether a node has a better pair than this one, by more than half of what this one lacks."""
        limit = (self.values[pair] + median(self.values.values())) / 2
        return any(value > limit for one, value in self.values.items() if node in one and one != pair)

    def num_low(self, pair: tuple[str, str]) -> int:
        """How many measurements of a pair lie below all others themselves."""
        usual = fmean(self._others(pair))
        return sum(_value([one]) - usual <= -self.smallest for one in self.pairs if _key(one) == pair)

    def _of_node(self, node: str, num_nodes: int) -> _SlowNode | None:
        """A node all of whose pairs are low; ``None`` where one is not, or there are too few."""
        own = [value for pair, value in self.values.items() if node in pair]
        others = pulled_in([value for pair, value in self.values.items() if node not in pair] or own)
        if min(len(own), len(self.values) - len(own)) < _LEAST_PAIRS or max(own) - fmean(others) > -self.smallest:
            return None
        # One slow link among a node's pairs must neither lower their middle nor vanish from their spread.
        variance, freedom = pooled([(variance_of(own), len(own) - 1), spread_of(others)])
        error = math.sqrt(variance * ((1 + 1 / len(own)) / 2 + 2 / (num_nodes - 1)))
        deviation = median(own) - fmean(others)
        return _SlowNode(node, deviation, upper_tail(-deviation / error, freedom), len(own))

    def _against_others(self, pair: tuple[str, str]) -> tuple[float, float]:
        """How far a pair lies above all others, and the probability of so low a one by chance."""
        others = self._others(pair)
        variance, freedom = spread_of(others)
        deviation = self.values[pair] - fmean(others)
        return deviation, upper_tail(-deviation / math.sqrt(variance * (1 + 1 / len(others))), freedom)

    def _others(self, pair: tuple[str, str]) -> list[float]:
        """Values of all other pairs, those far off pulled in."""
        return pulled_in([value for one, value in self.values.items() if one != pair])


def _value(measured: Sequence[PairFigure]) -> float:
    """Logarithm of what a pair reached in all its measurements, higher is better."""
    return METRICS[measured[0].metric].sign * math.log(median(value for pair in measured for value in pair.values))


def _key(pair: PairFigure) -> tuple[str, str]:
    first, second = sorted(pair.nodes)
    return first, second


def _is_certain(deviation: float) -> bool:
    return as_fraction(deviation) <= -SLOWER_FRACTION
