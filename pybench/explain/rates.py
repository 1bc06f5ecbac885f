"""Rates that one node's check measured, and how long a message takes by them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

# An all-reduce does the work of a reduce-scatter and an all-gather, so it bounds either where that was not measured.
_BOUND = "all_reduce"
_MIN_SIZES = 2


class UnmeasuredError(Exception):
    """The node's run lacks a rate that a prediction needs; the message names it."""


@dataclass(frozen=True)
class AlphaBeta:
    """A message takes ``alpha_s`` plus ``beta_s_per_byte`` for each byte; ``misfit_fraction`` is the worst error.

    Source: R. W. Hockney, The communication challenge for MPP, Parallel Computing 20 (1994).
    """

    alpha_s: float
    beta_s_per_byte: float
    misfit_fraction: float = 0.0

    def time_s(self, num_bytes: float) -> float:
        """Seconds of a message of this size."""
        return self.alpha_s + self.beta_s_per_byte * num_bytes

    def at(self, operation: str, count: int, wanted: int, *, tree: bool) -> AlphaBeta:
        """The same links with ``wanted`` ranks instead of the ``count`` that were measured.

        Bandwidth follows the bytes that each rank sends (nccl-tests, doc/PERFORMANCE.md), latency the number of steps:
        n - 1 in a ring, log2 n in a tree (Thakur, Rabenseifner, Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005).
        """
        steps = math.log2(wanted) / math.log2(count) if tree else (wanted - 1) / (count - 1)
        sent = 1.0 if operation == "broadcast" else (1 - 1 / wanted) / (1 - 1 / count)
        return AlphaBeta(self.alpha_s * steps, self.beta_s_per_byte * sent, self.misfit_fraction)


def fit(curve: Sequence[tuple[float, float]]) -> AlphaBeta:
    """Least squares of the relative error over (bytes, seconds), with neither latency nor bandwidth below 0.

    Relative errors give small sizes, which alone show the latency, the weight of large ones. Raises ``ValueError`` with
    fewer than two sizes, or with a time that is not positive.
    """
    if len({size for size, _ in curve}) < _MIN_SIZES or any(time_s <= 0 for _, time_s in curve):
        raise ValueError(f"a fit needs times of two sizes, found {list(curve)}")
    # Columns of the design matrix, each row divided by its time: alpha / t + beta s / t should be 1.
    ones, sizes = [1 / t for _, t in curve], [s / t for s, t in curve]
    aa, ab, bb = _dot(ones, ones), _dot(ones, sizes), _dot(sizes, sizes)
    a, b = sum(ones), sum(sizes)
    determinant = aa * bb - ab * ab
    alpha, beta = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if alpha < 0:
        alpha, beta = 0.0, b / bb
    elif beta < 0:
        alpha, beta = a / aa, 0.0
    misfit = max(abs((alpha + beta * size) / time_s - 1) for size, time_s in curve)
    return AlphaBeta(alpha, beta, misfit)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))


@dataclass(frozen=True, kw_only=True)
class GpuRates:
    """Rates of one GPU: FLOP/s of products, bytes/s of its memory."""

    matmul_flops_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class NodeRates:
    """Rates of the slowest GPU and of the slowest link between two GPUs; ``None``: not measured.

    ``launch_s`` is the host's time to launch one kernel on a GPU. ``gpus`` has the rates of each GPU by name.
    ``collectives`` has a fit for each operation and number of GPUs. ``between_nodes`` has the collectives over all GPUs
    of several nodes, by the number of nodes; ``num_nodes`` is the number that ``collectives`` cover.
    """

    matmul_flops_per_s: float
    memory_bytes_per_s: float
    peer_bytes_per_s: float | None = None
    launch_s: float | None = None
    gpus: Mapping[str, GpuRates] = field(default_factory=dict)
    collectives: Mapping[tuple[str, int], AlphaBeta] = field(default_factory=dict)
    between_nodes: Mapping[int, Mapping[tuple[str, int], AlphaBeta]] = field(default_factory=dict)
    num_nodes: int = 1

    def over(self, num_nodes: int) -> NodeRates:
        """The rates with the collectives over ``num_nodes`` nodes."""
        if num_nodes == 1:
            return self
        return replace(
            self, collectives=self.between_nodes.get(num_nodes, {}), peer_bytes_per_s=None, num_nodes=num_nodes
        )

    def on(self, names: Iterable[str]) -> NodeRates:
        """The rates of the slowest of these GPUs. Every name must be in ``gpus``."""
        gpus = [self.gpus[name] for name in names]
        return replace(
            self,
            matmul_flops_per_s=min(gpu.matmul_flops_per_s for gpu in gpus),
            memory_bytes_per_s=min(gpu.memory_bytes_per_s for gpu in gpus),
        )

    def collective_s(self, operation: str, num_bytes: float, count: int) -> float:
        """Seconds of one operation over ``count`` GPUs; 0 for one GPU. Raises :class:`UnmeasuredError`."""
        if count == 1:
            return 0.0
        curve = self.collectives.get((operation, count)) or self.collectives.get((_BOUND, count))
        if curve is None:
            over = f" over {self.num_nodes} nodes" if self.num_nodes > 1 else ""
            raise UnmeasuredError(f"the node's run has no size curve of {operation} on {count} GPUs{over}")
        return curve.time_s(num_bytes)

    def send_s(self, num_bytes: float) -> float:
        """Seconds from one GPU to the next. Raises :class:`UnmeasuredError`."""
        if self.num_nodes > 1:
            raise UnmeasuredError("the model knows no copy between nodes (pipeline_parallel)")
        if self.peer_bytes_per_s is None:
            raise UnmeasuredError("the node's run has no peer_copy; measure node_check")
        return num_bytes / self.peer_bytes_per_s
