"""How much of a step is communication that no computing hides.

After the measured steps, ordinary steps and steps without any exchange take turns. A step's exposed communication is
what it takes beyond the silent one. In silent steps no rank waits for another, so they also show how far the slowest
rank lies behind the others. The replicas diverge in silent steps: nothing is trained after them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import torch
from torch import distributed

from pybench.model.wire import Metric
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.failure import cause_of


def control_metrics(
    train: Callable[[], object], silence: AbstractContextManager[None], ranks: TorchRanks, num_steps: int
) -> tuple[Metric, ...]:
    """``num_steps`` of either kind; the ordinary ones first, since weights that stay gathered can't be let go.

    Two ranks at least: what a lone one exchanges with itself is no communication, and nobody is there to lag behind.
    Empty where a rank has no memory for silent steps, which hold all weights and gradients: the attempt is measured.
    """
    ordinary_s = statistics.median(_timed_s(train, ranks) for _ in range(num_steps))
    silent_s = _silent_s(train, silence, ranks, num_steps)
    if silent_s is None:
        return ()
    *others_s, slowest_s = sorted(_on_all_ranks(silent_s, ranks))
    exposed = max(0.0, 1 - slowest_s / ordinary_s)
    gap = slowest_s / statistics.median(others_s) - 1
    return (
        Metric(name="exposed_communication_fraction", value=exposed, unit=""),
        Metric(name="straggler_gap_fraction", value=gap, unit=""),
    )


def _silent_s(
    train: Callable[[], object], silence: AbstractContextManager[None], ranks: TorchRanks, num_steps: int
) -> float | None:
    """This rank's median; ``None`` on all ranks where one is out of memory. They agree on that before each step."""
    lengths_s = []
    with ExitStack() as silenced:
        has_memory = _fits(lambda: silenced.enter_context(silence))
        for _ in range(1 + num_steps):  # the first may still gather
            if not ranks.unanimous(has_memory):
                return None
            has_memory = _fits(lambda: lengths_s.append(_timed_s(train, ranks)))
    return statistics.median(lengths_s[1:]) if ranks.unanimous(has_memory) else None


def _fits(work: Callable[[], object]) -> bool:
    try:
        work()
    except (RuntimeError, MemoryError) as error:
        if cause_of(error) != "out_of_memory":
            raise
        return False
    return True


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
