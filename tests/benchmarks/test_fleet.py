"""Error rates of a fleet's check, on simulated fleets with known truth.

Nodes differ by 0.5 %, the four GPUs of a node by 0.3 %, attempts by 0.3 %; a slow node, GPU or link by 5 %. Pairs are
those of three rounds. Run by ``make bench``; single fleets are in ``tests/fleet``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from pybench.fleet.pairs import pair_rounds
from pybench.fleet.values import FleetResult
from tests.benchmarks.tables import write_table
from tests.fleets import Fleet, Kind, named

TRIALS = 50
SLOW = -math.log(0.95)
Judge = Callable[[Fleet, np.random.Generator], FleetResult]


def _rates(judge: Judge, fleet: Fleet, truth: set[Any]) -> tuple[int, int]:
    """Count fleets with every true fault named, and fleets with a false name."""
    random = np.random.default_rng(1)
    results = [judge(fleet, random) for _ in range(TRIALS)]
    names = [named(result) | {link.nodes for link in result.links} for result in results]
    return sum(truth <= own for own in names), sum(bool(own - truth) for own in names)


@pytest.mark.parametrize("num_nodes", [3, 4, 8, 16, 64])
def test_rates(benchmark: Any, capsys: pytest.CaptureFixture[str], num_nodes: int) -> None:
    """The goals are for sixteen nodes: 50 of 50 named, 50 of 50 healthy fleets clean."""
    well = Fleet(num_nodes=num_nodes)
    (pair, *_), *_ = pair_rounds(well.names)
    slow, gpu = replace(well, slow={"node02": SLOW}), replace(well, slow_gpus={("node02", 1): SLOW})
    drawn: list[tuple[str, Judge, Fleet, set[Any]]] = [
        ("figures: healthy", Fleet.judged, well, set()),
        ("figures: a slow node", Fleet.judged, slow, {"node02"}),
        ("figures: a slow GPU", Fleet.judged, gpu, {"node02"}),
        ("pairs: healthy", Fleet.judged_by_pairs, well, set()),
        ("pairs: a slow node", Fleet.judged_by_pairs, slow, {"node02"}),
        ("pairs: a slow link", Fleet.judged_by_pairs, replace(well, slow_links={pair: SLOW}), {pair}),
    ]
    rates = benchmark.pedantic(
        lambda: [(name, *_rates(judge, fleet, truth)) for name, judge, fleet, truth in drawn], rounds=1
    )
    benchmark.extra_info["rates"] = {name: (hit, false) for name, hit, false in rates}
    with capsys.disabled():
        print()
        for name, hit, false in rates:
            print(f"  {num_nodes:>3} nodes, {name:<24} named {hit:>3} of {TRIALS}, others named in {false:>3}")


BEFORE = {"normal": "0; 0", "heavy tails": "16; 20", "a slower bin": "68; 72", "unequal spreads": "35; 45"}
"""Of a620776e: any node named after one run, any bad one after two."""


def test_healthy_fleets(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Sixteen healthy nodes of four kinds: % of fleets with a suspect, a bad node, two groups; rewrites the page."""

    def rates(kind: Kind, num_runs: int) -> str:
        random = np.random.default_rng(1)
        results = [Fleet(kind=kind).judged(random, num_runs) for _ in range(2 * TRIALS)]
        suspect = sum(any(node.state == "suspect" for node in result.nodes) for result in results)
        bad = sum(any(node.state == "bad" for node in result.nodes) for result in results)
        return f"{suspect}; {bad}; {sum(any(group.slower for group in result.groups) for result in results)}"

    kinds: tuple[Kind, ...] = get_args(Kind)
    rows = benchmark.pedantic(
        lambda: [[kind, BEFORE[kind], *(rates(kind, runs) for runs in (1, 2))] for kind in kinds], rounds=1
    )
    heads = ["nodes", "before: named, 1 run; bad, 2 runs", "suspect; bad; two groups: 1 run", "2 runs"]
    write_table("fleet.md", "healthy fleets", [heads, *rows], capsys)
