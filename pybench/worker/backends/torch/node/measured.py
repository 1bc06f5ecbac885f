"""Base class of all workloads of a node, and the time that a device works."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from pybench.model.wire import Metric, Work
from pybench.worker.backend import StepOutcome
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.common_torch.round_clock import timed_event


class Measured:
    """A workload that measures itself: every step reports what :meth:`measure` found on this rank."""

    def __init__(self, ranks: TorchRanks) -> None:
        self.ranks = ranks
        self.device: torch.device = ranks.device

    def measure(self) -> dict[str, float]:
        """Do one step's work; values of this rank by name."""
        raise NotImplementedError

    def step(self, index: int) -> StepOutcome:
        """Every step does the same."""
        del index
        return StepOutcome(work=Work(), values=self.measure())

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory."""
        return memory_metrics(self.device)


_S_PER_MS = 1e-3
_S_PER_NS = 1e-9
# More than a host takes to queue one operation (30 us seen for a collective of torch), at the clock of today's GPUs.
_HOLD_CYCLES = 200_000


def timed_s(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds from the first to the last thing that ``work`` gives the device: CUDA events, on a CPU the host's clock.

    Returns after the device is done.
    """
    if device.type == "cpu":
        start_ns = time.monotonic_ns()
        work()
        return (time.monotonic_ns() - start_ns) * _S_PER_NS
    start = timed_event()
    work()
    end = timed_event()
    end.synchronize()
    return float(start.elapsed_time(end)) * _S_PER_MS


def hold(device: torch.device, num_operations: int) -> None:
    """Delay the next kernels on the device until the host has queued ``num_operations``.

    Where an operation takes the device less time than the host, the device would wait for the host between them. A CPU
    has no queue.
    """
    if device.type == "cuda":
        torch.cuda._sleep(num_operations * _HOLD_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001
