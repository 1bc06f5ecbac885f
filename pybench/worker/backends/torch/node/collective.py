"""Collective operations.

Sizes, times and bandwidths are those of nccl-tests (https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): for a
size S, a time t of one operation and n ranks,

- algbw = S / t,
- busbw = algbw * 2 (n - 1) / n for all_reduce, * (n - 1) / n for all_gather, reduce_scatter and all_to_all, * 1 for
  broadcast: the bytes that a ring sends over each link, for any algorithm;
- bisection is sendrecv there, with the rank that lies half of all ranks ahead as partner: busbw = algbw;
- S is the whole array also for all_gather and reduce_scatter, of which each rank holds S / n.

As there, operations are queued one behind the other, some of them before the first that is timed, and t is their mean.
A GPU begins with them when all are queued: Python takes longer to queue a small one than NVLink to carry it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import distributed

from pybench.model.workloads.node import Collective
from pybench.worker.backends.common_torch.process_group import TorchRanks, all_gather, reduce_scatter
from pybench.worker.backends.torch.node.measured import Measured, hold, timed_s

# Untimed, so that no rank's clock runs while it waits for another to begin.
_AHEAD = 5


def bus_factor(operation: str, num_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth."""
    share = (num_ranks - 1) / num_ranks
    return {"all_reduce": 2 * share, "broadcast": 1.0, "bisection": 1.0}.get(operation, share)


def rail_of(rank: int, num_ranks: int, num_nodes: int) -> tuple[int, ...]:
    """Ranks with the same place on their nodes as ``rank``, which have ranks that follow each other."""
    each = num_ranks // num_nodes
    return tuple(range(rank % each, num_ranks, each))


class CollectiveBench(Measured[Collective]):
    """One operation, again and again."""

    def __init__(self, settings: Collective, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
        dtype = getattr(torch, settings.element)
        # Who takes part in this rank's operations, ``None`` for all; every rank makes the groups of all rails.
        group, self._members = None, tuple(range(ranks.world_size))
        if settings.groups == "rails":
            of_node = range(ranks.world_size // settings.nodes)
            rails = [list(rail_of(rank, ranks.world_size, settings.nodes)) for rank in of_node]
            group, _ = distributed.new_subgroups_by_enumeration(rails)  # type: ignore[no-untyped-call]
            self._members = rail_of(ranks.rank, ranks.world_size, settings.nodes)
        # Whole elements on every rank, as nccl-tests rounds; up, so that each rank has one in the smallest message.
        length = -(-settings.message_bytes // (dtype.itemsize * len(self._members)))
        # Sums overflow after some operations; their speed does not depend on it.
        self._whole = whole = torch.ones(length * len(self._members), dtype=dtype, device=self.device)
        share = torch.ones(length, dtype=dtype, device=self.device)
        other = torch.empty_like(whole) if settings.operation in {"all_to_all", "bisection"} else whole
        operations: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: distributed.all_reduce(whole, group=group),
            "all_gather": lambda: all_gather(whole, share, group=group),
            "reduce_scatter": lambda: reduce_scatter(share, whole, group=group),
            "all_to_all": lambda: distributed.all_to_all_single(other, whole, group=group),
            "broadcast": lambda: distributed.broadcast(whole, src=self._members[0], group=group),
            "bisection": lambda: self._exchange(whole, other),
        }
        self._operate = operations[settings.operation]

    def measure(self) -> dict[str, float]:
        """Time, algbw and busbw of one operation as this rank saw them."""
        settings = self._settings
        hold(self.device, _AHEAD + settings.operations)
        for _ in range(_AHEAD):
            self._operate()
        length_s = timed_s(self.device, self._repeat) / settings.operations
        algbw = self._whole.nbytes / length_s
        factor = bus_factor(settings.operation, len(self._members))
        nvls = {} if self.ranks.has_nvls is None else {"nvls": float(self.ranks.has_nvls)}
        return {"collective_s": length_s, "algbw_bytes_per_s": algbw, "busbw_bytes_per_s": algbw * factor, **nvls}

    def _repeat(self) -> None:
        for _ in range(self._settings.operations):
            self._operate()

    def _exchange(self, sent: torch.Tensor, received: torch.Tensor) -> None:
        """Send to the partner in the other half, and receive an equal message from there, at once."""
        count = self.ranks.world_size
        partner = (self.ranks.rank + count // 2) % count
        both = [
            distributed.P2POp(distributed.isend, sent, partner),
            distributed.P2POp(distributed.irecv, received, partner),
        ]
        for work in distributed.batch_isend_irecv(both):
            work.wait()
