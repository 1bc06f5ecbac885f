"""How much of a step is communication that no computing hides.

After the measured steps, ordinary steps and steps without any exchange take turns. A step's exposed communication is
what it takes beyond the silent one. In silent steps no rank waits for another, so they also show how far the slowest
rank lies behind the others. The replicas diverge in silent steps: nothing is trained after them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import distributed

from pybench.model.wire import Metric
from pybench.worker.backends.common_torch.process_group import TorchRanks


def control_metrics(
    train: Callable[[], object], silence: AbstractContextManager[None], ranks: TorchRanks, num_steps: int
) -> tuple[Metric, ...]:
    """``num_steps`` of either kind; the ordinary ones first, since weights that stay gathered can't be let go.

    Two ranks at least: what a lone one exchanges with itself is no communication, and nobody is there to lag behind.
    """
    ordinary_s = statistics.median(_timed_s(train, ranks) for _ in range(num_steps))
    with silence:
        _timed_s(train, ranks)  # the first may still gather
        silent_s = statistics.median(_timed_s(train, ranks) for _ in range(num_steps))
    *others_s, slowest_s = sorted(_on_all_ranks(silent_s, ranks))
    exposed = max(0.0, 1 - slowest_s / ordinary_s)
    gap = slowest_s / statistics.median(others_s) - 1
    return (
        Metric(name="exposed_communication_fraction", value=exposed, unit=""),
        Metric(name="straggler_gap_fraction", value=gap, unit=""),
    )


def _timed_s(train: Callable[[], object], ranks: TorchRanks) -> float:
    """This rank's own time, from a common start to its device's end."""
    ranks.barrier()
    start_ns = time.monotonic_ns()
    train()
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
    return (time.monotonic_ns() - start_ns) / 1e9


def _on_all_ranks(value: float, ranks: TorchRanks) -> list[float]:
    own = torch.tensor([value], dtype=torch.float64, device=ranks.device)
    found = [torch.empty_like(own) for _ in range(ranks.world_size)]
    distributed.all_gather(found, own)
    return [one.item() for one in found]
