"""What one node was measured to reach, and what joins it to others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pybench.explain.comm_model.alpha_beta import AlphaBeta

# All-reduce does the work of a reduce-scatter and an all-gather: where one of these was not measured, it is a bound.
_BOUND = "all_reduce"


class UnmeasuredError(Exception):
    """The node's run lacks a figure that a prediction needs; the message names it."""


@dataclass(frozen=True, kw_only=True)
class GpuFigures:
    """One GPU: FLOP/s of products, bytes/s of its memory."""

    matmul_flops_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class NodeFigures:
    """Of the slowest GPU: FLOP/s of products, bytes/s of its memory, bytes/s over the slowest link between two.

    ``to_host_bytes_per_s`` and ``from_host_bytes_per_s`` are copies between a GPU and pinned host memory.
    ``launch_s`` are the host's seconds to launch one kernel, ``None`` where that was not measured on a GPU.
    ``gpus`` are the figures of each by its name, ``collectives`` are keyed by operation and number of GPUs.
    ``between_nodes`` are collectives over all GPUs of several nodes, by the number of nodes; ``num_nodes`` is how many
    the others are of.
    """

    matmul_flops_per_s: float
    memory_bytes_per_s: float
    peer_bytes_per_s: float | None = None
    to_host_bytes_per_s: float | None = None
    from_host_bytes_per_s: float | None = None
    launch_s: float | None = None
    gpus: Mapping[str, GpuFigures] = field(default_factory=dict)
    collectives: Mapping[tuple[str, int], AlphaBeta] = field(default_factory=dict)
    between_nodes: Mapping[int, Mapping[tuple[str, int], AlphaBeta]] = field(default_factory=dict)
    num_nodes: int = 1

    def over(self, num_nodes: int) -> NodeFigures:
        """With what joins ``num_nodes`` nodes in place of one node's own collectives and links."""
        if num_nodes == 1:
            return self
        joined = self.between_nodes.get(num_nodes, {})
        return replace(self, collectives=joined, peer_bytes_per_s=None, num_nodes=num_nodes)

    def on(self, names: Iterable[str]) -> NodeFigures:
        """With the figures of the slowest of these GPUs, of which there is at least one, and all known."""
        own = [self.gpus[name] for name in names]
        return replace(
            self,
            matmul_flops_per_s=min(gpu.matmul_flops_per_s for gpu in own),
            memory_bytes_per_s=min(gpu.memory_bytes_per_s for gpu in own),
        )

    def collective_s(self, operation: str, num_bytes: float, count: int) -> float:
        """Seconds of one operation over ``count`` GPUs; 0 for one. Raises :class:`UnmeasuredError`."""
        if count == 1:
            return 0.0
        curve = self.collectives.get((operation, count)) or self.collectives.get((_BOUND, count))
        if curve is None:
            over = f" over {self.num_nodes} nodes" if self.num_nodes > 1 else ""
            raise UnmeasuredError(f"the node's run has no size curve of {operation} on {count} GPUs{over}")
        return curve.time_s(num_bytes)

    def to_host_s(self, num_bytes: float) -> float:
        """Seconds of a copy to the host. Raises :class:`UnmeasuredError`."""
        return _copied_s(num_bytes, self.to_host_bytes_per_s, "d2h")

    def from_host_s(self, num_bytes: float) -> float:
        """Seconds of a copy from the host. Raises :class:`UnmeasuredError`."""
        return _copied_s(num_bytes, self.from_host_bytes_per_s, "h2d")

    def send_s(self, num_bytes: float) -> float:
        """Seconds from one GPU to the next. Raises :class:`UnmeasuredError`."""
        if self.num_nodes > 1:
            raise UnmeasuredError("the model knows no copy between nodes (pipeline_parallel)")
        if self.peer_bytes_per_s is None:
            raise UnmeasuredError("the node's run has no peer_copy; measure node_check")
        return num_bytes / self.peer_bytes_per_s


def _copied_s(num_bytes: float, bytes_per_s: float | None, direction: str) -> float:
    if not num_bytes:
        return 0.0
    if bytes_per_s is None:
        raise UnmeasuredError(f"the node's run has no host_device_copy {direction}; measure node_check")
    return num_bytes / bytes_per_s
