"""Slow nodes and slow links by pairs, in simulated fleets whose truth is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pybench.fleet.decision import judge_fleet
from pybench.fleet.pairs import slow_pairs
from pybench.fleet.values import FleetResult, PairFigure
from pybench.model.figures import SmallestEffects
from tests.fleets import Fleet, named
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("fleet.pairs")

FIVE_PERCENT = -math.log(0.95)
EFFECTS = SmallestEffects()


def judged(seed: int = 1, **changed: Any) -> FleetResult:
    return Fleet(**changed).judged_by_pairs(np.random.default_rng(seed))


def pair(a: str, b: str, value: float, **changed: Any) -> PairFigure:
    return PairFigure(nodes=(a, b), metric="busbw_bytes_per_s", values=(value,), **changed)


@pytest.mark.parametrize("num_nodes", [4, 5, 16])
@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_fleet_has_no_slow_pair(num_nodes: int, seed: int) -> None:
    """Nodes that differ by 0.5 %; without their own runs they are not healthy."""
    result = judged(seed, num_nodes=num_nodes)
    assert (named(result), result.links, result.state) == (set(), (), "not compared")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("shortfall", "state"), [(FIVE_PERCENT, None), (0.09, "bad")])
def test_a_slow_node_is_named_by_all_its_pairs(seed: int, shortfall: float, state: str | None) -> None:
    """In three rounds of sixteen nodes; neither its partners nor its links are. From 5 % on it is bad."""
    result = judged(seed, slow={"node05": shortfall})
    assert (named(result), result.links) == ({"node05"}, ())
    assert state in {None, result.nodes[0].state}
    assert result.nodes[0].symptoms[0].text == SENTENCES["a_slow_node_is_named_by_all_its"]


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_link_is_named_and_no_node(seed: int) -> None:
    """5 % between two nodes that met in the first rounds."""
    result = judged(seed, slow_links={("node01", "node15"): FIVE_PERCENT})
    assert (named(result), [link.nodes for link in result.links]) == (set(), [("node01", "node15")])
    assert result.links[0].fraction == pytest.approx(-0.05, abs=0.02)
    assert result.links[0].state == "suspect"  # one measurement


def test_a_node_and_a_link_at_once() -> None:
    """And two slow nodes, which meet each other in some round of all."""
    both = judged(2, slow={"node05": FIVE_PERCENT}, slow_links={("node01", "node15"): FIVE_PERCENT})
    assert (named(both), [link.nodes for link in both.links]) == ({"node05"}, [("node01", "node15")])
    two = judged(2, num_rounds=15, slow={"node05": FIVE_PERCENT, "node06": 2 * FIVE_PERCENT})
    assert (named(two), two.links) == ({"node05", "node06"}, ())


def test_a_link_that_was_slow_twice_is_bad() -> None:
    """8 % below in both measurements; once low and once usual it stays suspect, until a third one is low."""
    slow, usual = (
        Fleet(slow_links=links).pairs(np.random.default_rng(1)) for links in ({("node01", "node15"): 0.08}, {})
    )
    low, well = (next(one for one in pairs if one.nodes == ("node01", "node15")) for pairs in (slow, usual))
    for more, state, num in (([], "suspect", 1), ([well], "suspect", 1), ([well, low], "bad", 2), ([low], "bad", 2)):
        (link,) = slow_pairs([*slow, *more], EFFECTS).links
        assert (link.nodes, link.state, link.num_low) == (("node01", "node15"), state, num)


def test_two_nodes_cannot_be_told_apart() -> None:
    """Also not from the link between them: three nodes have too few pairs for a link."""
    found = slow_pairs([pair("a", "b", 1.0)], EFFECTS)
    assert (found.symptoms, found.links) == ({}, ())
    assert found.notes == (SENTENCES["two_nodes_cannot_be_told_apart"],)


def test_a_node_with_one_slow_pair_may_be_the_link() -> None:
    """E met d alone, 15 % below the others."""
    pairs = [pair(names[0], names[1], 1.0 + 0.001 * n) for n, names in enumerate(("ab", "cd", "ac", "bd", "ad", "bc"))]
    found = slow_pairs([*pairs, pair("d", "e", 0.85)], EFFECTS)
    assert (found.symptoms, found.links) == ({}, ())
    assert found.notes == (SENTENCES["a_node_with_one_slow_pair_may_be_the"],)


def test_what_was_left_out_before_is_noted() -> None:
    """Before notes on undecided pairs."""
    result = judge_fleet((), pairs=[pair("a", "b", 1.0)], notes=["pairs: run r was given twice; it counts once"])
    assert [note.partition(":")[2][:8] for note in result.notes] == [" run r w", " a - b: "]


def test_rails_and_sizes_are_judged_apart() -> None:
    """A node that is slow on one rail is named with the rail; small messages are not held against large ones."""
    slow = Fleet(num_nodes=8, slow={"node05": FIVE_PERCENT}).pairs(np.random.default_rng(4))
    well = Fleet(num_nodes=8).pairs(np.random.default_rng(5))
    rails = [
        PairFigure(nodes=one.nodes, metric=one.metric, values=tuple(factor * v for v in one.values), rail=rail)
        for pairs, rail, factor in ((slow, 3, 1.0), (well, 0, 0.1))
        for one in pairs
    ]
    found = slow_pairs(rails, EFFECTS)
    assert {node: [one.text for one in own] for node, own in found.symptoms.items()} == {
        "node05": ["rail 3; with all of its 3 partners"]
    }
    assert found.links == ()


def test_times_are_turned() -> None:
    """A node whose pairs take longer is the slow one."""
    fleet = Fleet(slow={"node05": FIVE_PERCENT}).pairs(np.random.default_rng(1))
    times = [PairFigure(nodes=p.nodes, metric="collective_s", values=tuple(1 / v for v in p.values)) for p in fleet]
    assert [*slow_pairs(times, EFFECTS).symptoms] == ["node05"]
