"""A seeded simulator of fleets with known faults, to test what a fleet's check names.

A figure is exp(level + node + GPU + attempt): ``node_sd`` is the spread between nodes, common to all figures of a
group, ``gpu_sd`` that between the GPUs of a node, ``attempt_sd`` that between attempts. A pair of nodes has the speed
of the slower one, over their link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pybench.fleet.decision import judge_fleet
from pybench.fleet.pairs import DECISION_ROUNDS, pair_rounds
from pybench.fleet.values import FleetResult, NodeRun, PairFigure
from pybench.model.figures import FigureKey, PointFigures, RunFigures

POINTS: dict[str, tuple[str, str, float]] = {
    # Point: group, metric, level.
    "matmul": ("products", "matmul_flops_per_s", 670e12),
    "matmul_narrow": ("products", "matmul_flops_per_s", 1320e12),
    "burn": ("products", "burn_flops_per_s", 538e12),
    "memory copy": ("memory", "memory_bytes_per_s", 4.24e12),
    "memory triad": ("memory", "memory_bytes_per_s", 4.35e12),
    "host_copy": ("host copies", "host_copy_bytes_per_s", 55e9),
    "peer_copy": ("links", "peer_copy_bytes_per_s", 375e9),
    "all_reduce 16": ("links", "busbw_bytes_per_s", 265e9),
    "all_reduce 512": ("links", "busbw_bytes_per_s", 348e9),
    "launch": ("launches", "launch_s", 10e-6),
}
_BY_GPU = frozenset(("products", "memory", "host copies"))
_PAIR_LEVEL = 46e9


Kind = Literal["normal", "heavy tails", "a slower bin", "unequal spreads"]
"""How healthy nodes differ in a group of figures: normal; Student's t with 3 degrees of freedom and the same standard
deviation; normal with a third of the nodes 3 % slower; normal with a spread of 0.1 to 2 % of each node's own."""


def offsets(kind: Kind, node_sd: float, num: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Logarithms of the nodes' speeds."""
    normal = random.standard_normal(num)
    if kind == "heavy tails":
        return node_sd / math.sqrt(3) * random.standard_t(3, num)
    if kind == "a slower bin":
        return node_sd * normal - 0.03 * (random.random(num) < 1 / 3)
    if kind == "unequal spreads":
        return np.exp(random.uniform(math.log(0.001), math.log(0.02), num)) * normal
    return node_sd * normal


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A fleet. ``slow`` are nodes, ``slow_gpus`` GPUs of nodes, ``slow_links`` pairs of nodes, with the shortfall."""

    num_nodes: int = 16
    num_gpus: int = 4
    num_attempts: int = 4
    num_rounds: int = DECISION_ROUNDS
    node_sd: float = 0.005
    gpu_sd: float = 0.003
    attempt_sd: float = 0.003
    pair_sd: float = 0.003
    slow: Mapping[str, float] = field(default_factory=dict)
    slow_gpus: Mapping[tuple[str, int], float] = field(default_factory=dict)
    slow_links: Mapping[tuple[str, str], float] = field(default_factory=dict)
    kind: Kind = "normal"

    @property
    def names(self) -> tuple[str, ...]:
        """``node01`` and so on."""
        return tuple(f"node{number:02}" for number in range(1, self.num_nodes + 1))

    def judged(self, random: np.random.Generator, num_runs: int = 1) -> FleetResult:
        """By its figures alone."""
        return judge_fleet(self.runs(random, num_runs))

    def judged_by_pairs(self, random: np.random.Generator) -> FleetResult:
        """The verdict by the figures of its pairs."""
        return judge_fleet((), pairs=self.pairs(random))

    def runs(self, random: np.random.Generator, num_runs: int = 1) -> list[NodeRun]:
        """``num_runs`` runs of every node."""
        groups = sorted({group for group, _, _ in POINTS.values()})
        nodes = {group: offsets(self.kind, self.node_sd, self.num_nodes, random) for group in groups}
        return [
            run
            for place, name in enumerate(self.names)
            for run in self._of_node(name, random, num_runs, {group: nodes[group][place] for group in groups})
        ]

    def pairs(self, random: np.random.Generator) -> list[PairFigure]:
        """The first rounds of pairs, three values each."""
        node = {name: self.node_sd * random.standard_normal() - self.slow.get(name, 0) for name in self.names}
        found = []
        for number, pairs in enumerate(pair_rounds(self.names)[: self.num_rounds], 1):
            for a, b in pairs:
                level = min(node[a], node[b]) - self.slow_links.get((a, b), 0) + self.pair_sd * random.standard_normal()
                noise = self.attempt_sd * random.standard_normal(3)
                values = tuple((_PAIR_LEVEL * np.exp(level + noise)).tolist())
                found.append(PairFigure(nodes=(a, b), metric="busbw_bytes_per_s", values=values, round=number))
        return found

    def _of_node(
        self, name: str, random: np.random.Generator, num_runs: int, offset: Mapping[str, float]
    ) -> list[NodeRun]:
        node = {group: value - self.slow.get(name, 0) for group, value in offset.items()}
        slow = np.array([self.slow_gpus.get((name, gpu), 0.0) for gpu in range(self.num_gpus)])
        gpus = {group: self.gpu_sd * random.standard_normal(self.num_gpus) - slow for group in sorted(_BY_GPU)}
        return [self._run(name, number, random, node, gpus) for number in range(num_runs)]

    def _run(
        self, name: str, number: int, random: np.random.Generator, node: Mapping[str, float],
        gpus: Mapping[str, np.ndarray],
    ) -> NodeRun:  # fmt: skip
        points, by_gpu = [], {}
        for point, (group, metric, level) in POINTS.items():
            sign = -1 if metric == "launch_s" else 1
            own = gpus.get(group, np.zeros(1))
            noise = self.attempt_sd * random.standard_normal((len(own), self.num_attempts))
            values = level * np.exp(sign * (node[group] + own[:, None] + noise))
            if group in _BY_GPU:
                by_gpu[FigureKey(point, metric)] = {
                    f"GPU-{name}-{n}": tuple(one.tolist()) for n, one in enumerate(values)
                }
            points.append(_point(point, metric, values.min(axis=0).tolist()))
        figures = RunFigures(
            run_id=f"run {number}", created_utc=f"2026-11-22T0{number}:00:00+00:00", suite="node_check",
            verdict="pass", keys={"driver": '"580.1"'}, points=tuple(points),
        )  # fmt: skip
        uuids = tuple(f"GPU-{name}-{n}" for n in range(self.num_gpus))
        indices = {uuid: n for n, uuid in enumerate(uuids)}
        return NodeRun(node=name, figures=figures, uuids=uuids, gpus=by_gpu, indices=indices)


def _point(name: str, metric: str, medians: Sequence[float]) -> PointFigures:
    return PointFigures(id=name, benchmark=name, axes={}, num_gpus=1, digest=name, medians={metric: tuple(medians)})


def named(result: FleetResult) -> set[str]:
    """Nodes that are suspect or bad."""
    return {node.name for node in result.nodes if node.state in {"suspect", "bad"}}
